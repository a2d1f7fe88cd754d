// The live page: takes server-sent events, and shows them. Everything from outside goes in as text, never as HTML.
"use strict";

const token = location.hash.slice(1); // as it stands: it needs no escapes, and others may hold any
const SHOWN = 200; // lines of what passes that stay on the page
const number = new Intl.NumberFormat("en");
const place = (id) => document.getElementById(id);

function make(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function show(id, text) {
  const there = place(id);
  if (there.textContent !== text) there.textContent = text;
}

function bytes(count) {
  if (count < 1e3) return `${count} bytes`;
  if (count < 1e6) return `${(count / 1e3).toFixed(1)} kB`;
  if (count < 1e9) return `${(count / 1e6).toFixed(2)} MB`;
  return `${(count / 1e9).toFixed(2)} GB`;
}

function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

const STATES = {
  "none": "No run has begun here.",
  "not begun": "It has not begun.",
  "running": "It is running.",
  "silent": "Its process is there, but nothing was heard of it for a while: it may be waiting for others.",
  "broken off": "It broke off. hedgerow resume takes it up again.",
  "failed": "It failed; hedgerow status says why. hedgerow resume takes it up again.",
  "over": "It is over. hedgerow manifest shows what left.",
};

function onRun(run) {
  const words = STATES[run.state] || run.state;
  show("run-words", run.run_id ? `Run ${run.run_id.slice(0, 12)} by ${run.protocol}. ${words}` : words);
  place("run-facts").hidden = !run.last_word;
  if (!run.last_word) return;
  place("steps").max = Math.max(run.total, 1);
  place("steps").value = run.state === "over" ? Math.max(run.total, 1) : run.done;
  const uncounted = run.sent.messages ? "steps are counted at another party" : "preparing";
  show("steps-words", run.total ? `${run.done} of ${run.total}` : uncounted);
  show("sent-bytes", bytes(run.sent.bytes));
  show("sent-messages", `${number.format(run.sent.messages)} messages`);
  show("received-bytes", bytes(run.received.bytes));
  show("received-messages", `${number.format(run.received.messages)} messages`);
  show("rounds", number.format(run.rounds));
  const isOver = run.state === "over" || run.state === "failed";
  show("left", isOver ? "ended" : run.seconds_left === null ? "not known" : duration(run.seconds_left));
  const tries = run.attempt > 1 ? `, attempt ${run.attempt}` : "";
  show("since", `${duration(run.last_word - run.began)}${isOver ? "" : " so far"}${tries}`);
  rows("kinds", run.kinds.filter((kind) => kind.direction === "disclosed"));
  rows("came", run.kinds.filter((kind) => kind.direction === "learned"));
}

function rows(id, kinds) {
  const body = place(id).tBodies[0];
  const made = kinds.map((kind) => {
    const row = make("tr");
    row.setAttribute("role", "row");
    row.append(cell("th", kind.peer), cell("td", kind.message), cell("td", number.format(kind.messages), "number", kind.messages === 1 ? "message" : "messages"),
      cell("td", number.format(kind.bytes), "number", "bytes"), cell("td", kind.what), cell("td", kind.protection, colour(kind)));
    return row;
  });
  if (!made.length) {
    const row = make("tr");
    row.setAttribute("role", "row");
    row.append(cell("td", "nothing so far", "quiet"));
    row.firstElementChild.colSpan = 6;
    made.push(row);
  }
  body.replaceChildren(...made);
}

// Roles are said again: on a telephone rows are laid out as blocks, and a browser would forget that they are a table.
function cell(name, text, className, unit) {
  const made = make(name, text, className);
  if (name === "th") made.scope = "row";
  made.setAttribute("role", name === "th" ? "rowheader" : "cell");
  if (unit) made.dataset.unit = unit;
  return made;
}

function colour(kind) {
  if (kind.protection === "public") return "mark-public";
  if (kind.protection === "in the clear") return "mark-clear";
  if (kind.protection === "part of the result") return "mark-result";
  return kind.protection.startsWith("randomised") ? "mark-noise" : "mark-covered";
}

function onPassed(event) {
  const list = place("passing");
  for (const quiet of list.querySelectorAll("li.quiet")) quiet.remove();
  for (const line of event.lines) {
    const isOut = line.direction === "disclosed";
    const item = make("li");
    const told = `${number.format(line.messages)} ${line.message} ${isOut ? "to" : "from"} ${line.peer}, ${bytes(line.bytes)}: `
      + `${line.what} (${line.protection})`;
    item.append(make("span", clock(event.at), "at"), make("span", isOut ? "left" : "came in", isOut ? "out" : "in"),
      make("span", told, "told"));
    list.prepend(item);
  }
  while (list.children.length > SHOWN) list.lastElementChild.remove();
}

function onBudgets(event) {
  const made = event.budgets.map((state) => {
    const box = make("div", null, "limit");
    const loss = (epsilon) => (epsilon === null ? "without limit" : epsilon.toPrecision(3));
    const spent = `epsilon ${loss(state.spent_epsilon)} of ${loss(state.epsilon)} spent`;
    const bar = make("progress");
    bar.max = state.epsilon || 1;
    bar.value = state.epsilon === null ? 0 : Math.min(state.spent_epsilon ?? bar.max, bar.max);
    bar.setAttribute("aria-label", `Budget ${state.limit}`);
    const line = make("div", null, "bar-line");
    line.append(bar, make("span", spent, "small"));
    box.append(make("strong", state.limit), line);
    return box;
  });
  place("budgets").replaceChildren(...(made.length ? made : [make("p", "no limits", "quiet")]));
}

function onProposals(event) {
  const made = event.proposals.map((each) => {
    const box = make("article", null, "proposal");
    box.append(make("h3", `${each.protocol}, proposed by ${each.proposed_by}`));
    box.append(make("p", `${each.hash.slice(0, 12)}: ${each.state}. It expires at ${each.expires}.`, "quiet"));
    if (each.words) box.append(...inWords(each.words));
    for (const command of each.commands) box.append(make("pre", command));
    return box;
  });
  place("proposals").replaceChildren(...(made.length ? made : [make("p", "none", "quiet")]));
}

function inWords(lines) {
  const made = [];
  let list = null;
  for (const line of lines) {
    const isPoint = line.startsWith("- ") || line.startsWith("  ");
    if (isPoint && !list) made.push((list = make("ul")));
    if (isPoint) list.append(make("li", line.replace(/^- |^ +/, "")));
    else {
      list = null;
      if (line) made.push(make(line.endsWith(":") ? "h4" : "p", line));
    }
  }
  return made;
}

const handlers = {
  party: (event) => { show("party", event.party); },
  run: onRun,
  passed: onPassed,
  budgets: onBudgets,
  proposals: onProposals,
  trouble: (event) => { place("trouble").hidden = !event.words; show("trouble", event.words || ""); },
};

function take(block) {
  let data = "";
  for (const line of block.split("\n")) if (line.startsWith("data: ")) data += line.slice(6);
  if (!data) return;
  const event = JSON.parse(data);
  if (handlers[event.event]) handlers[event.event](event);
}

async function listen() {
  const answer = await fetch("/events", { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  if (answer.status === 403) {
    show("link", "not let in");
    place("trouble").hidden = false;
    show("trouble", "This address lacks its token, or has an old one. Open the address that hedgerow watch printed.");
    return false;
  }
  if (!answer.ok) throw new Error(await answer.text());
  show("link", "live");
  place("passing").replaceChildren();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    blocks.forEach(take);
  }
}

async function follow() {
  for (;;) {
    try {
      if (!(await listen())) return;
    } catch { /* the command has ended, or is not there yet: try again */ }
    show("link", "not connected: is hedgerow watch running?");
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

addEventListener("hashchange", () => location.reload());
follow();
