export {EditorState, Compartment} from "@codemirror/state";
export {EditorView, keymap, lineNumbers, highlightActiveLine, drawSelection} from "@codemirror/view";
export {StreamLanguage, syntaxHighlighting, HighlightStyle, bracketMatching, indentUnit} from "@codemirror/language";
export {linter, lintGutter, setDiagnostics} from "@codemirror/lint";
export {defaultKeymap, history, historyKeymap, indentWithTab} from "@codemirror/commands";
export {tags} from "@lezer/highlight";
