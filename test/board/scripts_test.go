package board

import (
	"os/exec"
	"testing"
)

// command runs a program and returns what it prints.
func command(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	return string(out), err
}

// contrastScript lists the texts whose contrast to what is behind them is below that of WCAG AA.
const contrastScript = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 }; };
  const luminance = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c.rgb; } return [255, 255, 255]; };
  const bad = new Set();
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    const e = n.parentElement;
    if (!n.nodeValue.trim() || e.closest("script, style, .hidden, .skip")) continue;
    seen++;
    const a = luminance(parse(getComputedStyle(e).color).rgb), b = luminance(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(e.className + " " + n.nodeValue.trim().slice(0, 40) + " " + ratio.toFixed(2));
  }
  if (seen < 50) bad.add("only " + seen + " texts were seen");
  return Array.from(bad);
})()`

// structureScript lists what a screen reader would miss.
const structureScript = `(() => {
  const bad = [];
  const one = (s) => { const n = document.querySelectorAll(s).length; if (n !== 1) bad.push(n + " of " + s); };
  for (const s of ["html[lang]", "title", "header", "nav[aria-label]", "main", "footer", "h1", "[aria-live=polite]"]) one(s);
  let level = 0;
  for (const h of document.querySelectorAll("h1, h2, h3, h4")) {
    const l = Number(h.tagName[1]);
    if (l > level + 1) bad.push("a heading skips a level: " + h.textContent);
    level = l;
  }
  for (const s of document.querySelectorAll("section")) {
    const h = document.getElementById(s.getAttribute("aria-labelledby"));
    if (!h || !h.textContent.trim()) bad.push("a section without a name");
  }
  for (const t of document.querySelectorAll("table")) {
    if (!t.caption || !t.caption.textContent.trim()) bad.push("a table without a caption");
    for (const th of t.querySelectorAll("th")) if (!th.scope) bad.push("a heading without a scope: " + th.textContent);
  }
  for (const b of document.querySelectorAll("button, a")) if (!(b.getAttribute("aria-label") || b.textContent).trim()) bad.push("a control without a name");
  for (const g of document.querySelectorAll("[role=group], [role=region]")) if (!g.getAttribute("aria-label")) bad.push("a group without a name");
  for (const b of document.querySelectorAll(".badge")) if (!b.textContent.trim()) bad.push("a state told by colour alone");
  for (const c of document.querySelectorAll(".grid .cordoned, .grid .down, .grid .partly")) {
    if (!/cordoned|not ready|partly/.test(c.getAttribute("aria-label"))) bad.push("a cell whose state is told by colour alone: " + c.getAttribute("aria-label"));
  }
  const ids = Array.from(document.querySelectorAll("[id]"), (e) => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id is there twice");
  for (const a of document.querySelectorAll("a[href^='#']")) if (!document.getElementById(a.hash.slice(1))) bad.push("a link leads nowhere: " + a.hash);
  return bad;
})()`
