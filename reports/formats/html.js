"use strict";
// Shows only the findings that the filters choose. Without this script, all are shown.
const form = document.querySelector("form");
const articles = [...document.querySelectorAll("article")];
const sections = [...document.querySelectorAll("section")];

function filter() {
  const chosen = new FormData(form);
  const text = chosen.get("text").trim().toLowerCase();
  for (const article of articles) {
    article.hidden =
      ![article.dataset.level, ""].includes(chosen.get("level")) ||
      ![article.dataset.rule, ""].includes(chosen.get("rule")) ||
      ![article.parentElement.dataset.file, ""].includes(chosen.get("file")) ||
      !article.textContent.toLowerCase().includes(text);
  }
  for (const section of sections) {
    section.hidden = !section.querySelector("article:not([hidden])");
  }
  const shown = articles.filter((article) => !article.hidden).length;
  form.querySelector("output").textContent = `${shown} of ${articles.length} shown`;
}

form.hidden = articles.length === 0;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();
