/* Sphinx's scores, but lower ones for what few readers look for. */
var Scorer = {
  score: ([page, , , , score]) =>
    /^(changelog|api\/pencils\.(dap|graph|layout)\.)/.test(page) ? score - 20 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
