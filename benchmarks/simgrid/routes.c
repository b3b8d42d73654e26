// Sends the messages of a node in stages, and prints how long the slowest rank takes:
// routes direct|gathered RANKS_ON_NODE BYTES SECONDS_OF_COPIES MEETING MEETING_LATER MESSAGES...
#include <mpi.h>
#include <simgrid/actor.h>
#include <simgrid/barrier.h>
#include <stdio.h>
#include <stdlib.h>

enum { EAGER = 8192 };
static int rank, size, on_node, nbytes, gathered;
static char *sent, *received;

// The peer of message `number` of this node, or of this rank, in a direction; -1 if it has none.
static int peer_of(int number, int direction) {
  int node = rank / on_node, nodes = size / on_node;
  if (gathered) {
    int other = (node + direction * (number + 1) + nodes) % nodes;
    return number % on_node == rank % on_node ? other * on_node + rank % on_node : -1;
  }
  for (int step = 1, found = 0;; step++) {
    int peer = (rank + direction * step + size) % size;
    if (peer / on_node != node && found++ == number) return peer;
  }
}

// Begin to send (direction 1) or to receive (-1) the messages of a stage.
static int begin(int first, int end, int direction, MPI_Request *requests) {
  int count = 0;
  for (int number = first; number < end; number++) {
    int peer = peer_of(number, direction);
    if (peer < 0) continue;
    MPI_Request *request = &requests[count++];
    if (direction > 0) MPI_Isend(sent, nbytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, request);
    else MPI_Irecv(received, nbytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, request);
  }
  return count;
}

static void meet(sg_bar_t barrier, double seconds) {
  if (!gathered) return;
  sg_barrier_wait(barrier);
  sg_actor_sleep_for(seconds);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  gathered = argv[1][0] == 'g', on_node = atoi(argv[2]), nbytes = atoi(argv[3]);
  double copies = atof(argv[4]), meetings[2] = {atof(argv[5]), atof(argv[6])};
  int stages = argc - 7, ends[stages + 1], nodes = size / on_node;
  ends[0] = 0;
  for (int stage = 0; stage < stages; stage++)
    ends[stage + 1] = ends[stage] + atoi(argv[7 + stage]) / (gathered ? 1 : on_node);
  sent = malloc(nbytes), received = malloc(nbytes);
  MPI_Request *out = malloc(size * sizeof *out), *in = malloc(size * sizeof *in);
  int outs = 0, ins = 0, arrivals[stages + 1];
  sg_bar_t *barriers = malloc((nodes + 1) * sizeof *barriers); // the last one of all ranks
  for (int node = 0; !rank && node <= nodes; node++)
    barriers[node] = sg_barrier_init(node < nodes ? on_node : size);
  MPI_Bcast(barriers, (nodes + 1) * sizeof *barriers, MPI_BYTE, 0, MPI_COMM_WORLD);
  sg_bar_t near = barriers[rank / on_node];
  sg_barrier_wait(barriers[nodes]);
  double start = MPI_Wtime(), took, longest;

  // A message that is not eager leaves when its receiver has packed the next stage, if there is one.
  arrivals[0] = 0;
  for (int stage = 0, begun = 0; stage < stages; stage++) {
    sg_actor_sleep_for(atoi(argv[7 + stage]) * copies);
    for (; begun < stage + (nbytes <= EAGER || stage == stages - 1); begun++) {
      ins += begin(ends[begun], ends[begun + 1], -1, in + ins);
      arrivals[begun + 1] = ins;
    }
    meet(near, meetings[stage > 0]);
    outs += begin(ends[stage], ends[stage + 1], 1, out + outs);
  }
  for (int stage = 0; stage < stages; stage++) {
    MPI_Waitall(arrivals[stage + 1] - arrivals[stage], in + arrivals[stage], MPI_STATUSES_IGNORE);
    if (stage == stages - 1) MPI_Waitall(outs, out, MPI_STATUSES_IGNORE);
    meet(near, meetings[stage > 0]);
    sg_actor_sleep_for(atoi(argv[7 + stage]) * copies);
  }
  took = MPI_Wtime() - start;
  MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (!rank) printf("%.9g\n", longest);
  MPI_Finalize();
}
