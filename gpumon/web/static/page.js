"use strict";
// Before the front end of textual-serve starts: where it connects, and how large its letters are.

// A cell of Roboto Mono is 0.6 times as wide as its letters are high; gpumon needs 60 of them.
const CELL = 0.6;
const WANTED_COLUMNS = 64;
const LARGEST = 16;
const SMALLEST = 8;

const start = window.onload;
window.onload = null;

function connect() {
  const terminal = document.getElementById("terminal");
  const address = new URL("ws", window.location.href);
  address.protocol = address.protocol.replace("http", "ws");
  terminal.dataset.sessionWebsocketUrl = address.href;
  const fitting = Math.floor(window.innerWidth / WANTED_COLUMNS / CELL);
  const size = Math.min(LARGEST, Math.max(SMALLEST, fitting));
  terminal.dataset.fontSize = String(size);
  document.getElementById("again").onclick = () => window.location.reload();
  // The size of a cell is measured once, so the font must be there.
  const fonts = ["400", "700"].map((weight) => document.fonts.load(`${weight} ${size}px "Roboto Mono"`));
  Promise.allSettled(fonts).then(start);
  // Its front end reports the focus, which fails before there is a connection.
  const observer = new MutationObserver(() => {
    if (terminal.classList.contains("-connected")) {
      observer.disconnect();
      terminal.querySelector("textarea").focus();
    }
  });
  observer.observe(terminal, { attributes: true, attributeFilter: ["class"] });
}

window.addEventListener("load", connect);
