/* Read the Docs tells which versions it hosts; elsewhere there is only this one. */
document.addEventListener("readthedocs-addons-data-ready", (event) => {
  const { active, current } = event.detail.data().versions;
  const choice = document.querySelector(".versions select");
  const options = active.map(({ slug, urls }) => new Option(slug, urls.documentation));
  choice.replaceChildren(...options);
  choice.selectedIndex = active.findIndex(({ slug }) => slug === current.slug);
  choice.addEventListener("change", () => location.assign(choice.value));
});
