// Each slider shows which atoms of its graph are true at a step.
for (const slider of document.querySelectorAll("input[type=range]")) {
  const figure = slider.closest("figure");
  const crossing = figure.dataset.crossing.split(",").map(Number); // first step above ½, or -1
  const boxes = crossing.map((_, i) => figure.querySelector(`[id$="-atom-${i}"]`));
  const dots = [...figure.querySelectorAll('[id$="-atoms"] use')];
  const shown = figure.querySelector("output");
  const draw = () => {
    let count = 0;
    crossing.forEach((first, i) => {
      const on = first >= 0 && first <= Number(slider.value);
      (boxes[i] ?? dots[i]).classList.toggle("off", !on);
      count += on;
    });
    shown.textContent = `step ${slider.value}: ${count} ${count === 1 ? "atom" : "atoms"} true`;
  };
  slider.addEventListener("input", draw);
  draw();
}
