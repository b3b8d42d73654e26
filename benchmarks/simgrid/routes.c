// Sends the messages of one route: routes direct|gathered RANKS_ON_NODE BYTES_OF_A_PIECE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size, on_node = atoi(argv[2]), count = 0;
  int gathered = argv[1][0] == 'g', nbytes = atoi(argv[3]) * (gathered ? on_node * on_node : 1);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int nodes = size / on_node, node = rank / on_node;
  char *sent = malloc(nbytes), *received = malloc(nbytes);
  MPI_Request *requests = malloc(2 * size * sizeof *requests);
  double start = MPI_Wtime(), took, longest;
  for (int side = 0; side < 2; side++)
    for (int step = 1; step < (gathered ? nodes : size); step++) {
      int other = gathered ? (node + (side ? step : nodes - step)) % nodes : 0;
      int peer = gathered ? other * on_node + node % on_node
                          : (rank + (side ? step : size - step)) % size;
      if (peer / on_node == node || (gathered && other % on_node != rank % on_node)) continue;
      if (side) MPI_Isend(sent, nbytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[count++]);
      else MPI_Irecv(received, nbytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[count++]);
    }
  MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
  took = MPI_Wtime() - start;
  MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (!rank) printf("%.9g\n", longest);
  MPI_Finalize();
}
