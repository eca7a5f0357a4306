// server/page/clipboard.js: copies a text.

// Browsers have no clipboard for pages that come over http from another machine, but still copy a selection; in a dialog
// only what is within it.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const from = document.activeElement, field = document.createElement("textarea");
  field.className = "unseen";
  field.value = text;
  (from.closest("dialog") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  from.focus();
  return undefined;
}
