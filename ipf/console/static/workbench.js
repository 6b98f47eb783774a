// The workbench: an editor for maps with mistakes at their place; the map runs after each pause in typing.
"use strict";
(() => {
  const {EditorState, EditorView, keymap, lineNumbers, StreamLanguage, syntaxHighlighting, HighlightStyle, bracketMatching, tags,
    setDiagnostics, lintGutter, defaultKeymap, history, historyKeymap, drawSelection, highlightActiveLine} = CodeMirror;
  const words = /^(?:map|uses|alias|as|source|target|queried|produced|imports|group|extends|src|tgt|then|where|check|log|first|last|not_first|not_last|only_one|share|collate|let|conceptmap|prefix|types|type|default)\b/;
  const fml = StreamLanguage.define({
    token(stream) {
      if (stream.eatSpace()) return null;
      if (stream.match(/^\/\/.*/)) return "comment";
      if (stream.match(/^"(?:[^"\\]|\\.)*"/) || stream.match(/^'(?:[^'\\]|\\.)*'/)) return "string";
      if (stream.match(words)) return "keyword";
      if (stream.match(/^\d+(?:\.\d+)?/)) return "number";
      if (stream.match(/^[A-Za-z_][\w-]*(?=\s*\()/)) return "function";
      if (stream.match(/^[A-Za-z_][\w-]*/)) return "variableName";
      stream.next();
      return "operator";
    },
    tokenTable: {function: tags.function(tags.variableName)},
  });
  const colours = HighlightStyle.define([
    {tag: tags.comment, color: "var(--soft)", fontStyle: "italic"}, {tag: tags.string, color: "var(--good)"},
    {tag: tags.keyword, color: "var(--info)", fontWeight: "600"}, {tag: tags.number, color: "var(--warn)"},
    {tag: tags.function(tags.variableName), color: "var(--accent)"}, {tag: tags.operator, color: "var(--soft)"},
  ]);
  const theme = EditorView.theme({
    "&:focus-within": {outline: "3px solid var(--focus)", outlineOffset: "-3px"},
    "&": {height: "26rem", fontSize: ".875rem", color: "var(--text)", backgroundColor: "var(--card)", border: "1px solid var(--soft)", borderRadius: ".375rem"},
    ".cm-scroller": {fontFamily: "var(--mono)"}, ".cm-gutters": {backgroundColor: "var(--ground)", color: "var(--soft)", border: "0"},
    ".cm-cursor": {borderLeftColor: "var(--text)"}, ".cm-activeLine": {backgroundColor: "transparent"},
  });
  const form = document.getElementById("bench"), text = form.querySelector("textarea[name=map]");
  const host = document.createElement("div");
  text.after(host);
  text.hidden = true;
  const root = host.attachShadow({mode: "open"}); // in a shadow root the editor's styles need no inline style element
  const changed = EditorView.updateListener.of((update) => {
    if (!update.docChanged) return;
    text.value = update.state.doc.toString();
    form.dispatchEvent(new Event("changed"));
  });
  const view = new EditorView({parent: root, root, state: EditorState.create({doc: text.value, extensions: [
    lineNumbers(), lintGutter(), history(), drawSelection(), highlightActiveLine(), bracketMatching(), fml, syntaxHighlighting(colours), theme, changed,
    EditorView.contentAttributes.of({"aria-label": text.labels[0].innerText}), keymap.of([...defaultKeymap, ...historyKeymap]),
  ]})});
  view.scrollDOM.tabIndex = 0; // a keyboard can scroll it without writing into it
  form.querySelector("textarea[name=message]").addEventListener("input", () => form.dispatchEvent(new Event("changed")));
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id !== "result") return;
    const mistake = event.target.querySelector("[data-mistake]"), found = [];
    const number = Number(mistake && mistake.dataset.line);
    if (number && mistake.dataset.file === "candidate.fml" && number <= view.state.doc.lines) {
      const line = view.state.doc.line(number);
      const from = Math.min(line.to, line.from + Math.max(0, Number(mistake.dataset.column) - 1));
      const word = /^[\w.-]+/.exec(line.text.slice(from - line.from));
      found.push({from, to: Math.min(line.to, from + (word ? word[0].length : 1)), severity: "error", message: mistake.textContent});
    }
    view.dispatch(setDiagnostics(view.state, found));
  });
  document.getElementById("download").addEventListener("click", (event) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text.value], {type: "text/plain"}));
    link.download = event.target.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
