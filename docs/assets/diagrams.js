// Draws mermaid diagrams with the copy of mermaid that this site carries; without it their source stays readable.
import(new URL("mermaid/index.js", import.meta.url)).then(({ mermaid }) => {
  const dark = document.body.getAttribute("data-md-color-scheme") === "slate";
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
  for (const block of document.querySelectorAll("pre.diagram")) {
    const drawing = document.createElement("div");
    drawing.className = "diagram";
    drawing.textContent = block.textContent;
    block.replaceWith(drawing);
  }
  mermaid.run({ querySelector: "div.diagram" });
}).catch(() => {});
