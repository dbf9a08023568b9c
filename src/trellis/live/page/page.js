// Record, train, try: the page of `trellis live`. Names and errors are shown as text, never as HTML.
// @ts-check
import {followed, hasSimd, openCamera, openDetector, Pace} from "./camera.js";
import {cleared, drawHand, thumbnail, within} from "./hand.js";
import {openNetwork, openStream} from "./model.js";

const $ = id => document.getElementById(id);
const page = crypto.randomUUID();
const video = $("video"), overlay = $("overlay"), stage = $("stage");
const s = {  // what the page knows
  server: null, step: "record", chosen: null, mode: "idle", frames: [], left: 0, hands: [], last: null,
  lastAt: 0, pace: null, replay: null, stream: null, network: null, model: null, names: [], found: 0,
  events: [], mine: true, drafts: [], detecting: false, rates: [],
};

// -- The server ------------------------------------------------------------------------------------
async function ask(path, body) {
  const options = {headers: {"X-Page": page}, cache: "no-store"};
  if (body) Object.assign(options, {method: "POST", body: JSON.stringify(body)});
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    notice("gone");
    throw new Error("the server does not answer");
  }
  const text = await answer.text();
  const found = text ? JSON.parse(text) : {};
  if (!answer.ok) throw new Error(found.error ?? `the server refused (${answer.status})`);
  return found;
}

async function refresh() {
  const before = s.server;
  s.server = await ask("state");
  if (!s.server.mine) { s.mine = false; notice("elsewhere"); return; }
  if (JSON.stringify(before?.gestures) !== JSON.stringify(s.server.gestures)) showGestures();
  showTraining();
}

// -- Messages --------------------------------------------------------------------------------------
const NOTICES = {
  starting: ["Starting", "The camera and the hand detector are starting. If the browser asks, allow the camera."],
  refused: ["The camera is blocked", "This page may not use the camera. Allow it in the address bar, then try again. The picture stays on this machine.", "Try again"],
  none: ["No camera was found", "Connect a camera, then try again.", "Try again"],
  busy: ["The camera is in use", "Another program may be using the camera. Close it, then try again.", "Try again"],
  unsupported: ["No camera in this browser", "This browser gives no camera to this page. Open the address that the command printed in Chromium, Firefox or Safari."],
  simd: ["This browser is too old", "The network needs WebAssembly with SIMD, which this browser lacks. Use Chromium 91, Firefox 89, Safari 16.4, or later."],
  detector: ["The hand detector did not start", "Reload the page. If that does not help, run: trellis live --set-up", "Reload"],
  elsewhere: ["This page is open elsewhere", "Another tab or window took over. Only one of them can use the camera.", "Use it here"],
  gone: ["The server has stopped", "Start it again in the terminal with trellis live, and open the address that it prints."],
};

function notice(kind) {
  $("notice").hidden = !kind;
  document.body.dataset.notice = kind ?? "";
  if (!kind) return;
  const [title, text, button] = NOTICES[kind];
  $("notice-title").textContent = title;
  $("notice-text").textContent = text;
  $("notice-button").textContent = button ?? "";
  $("notice-button").hidden = !button;
  $("go").disabled = true;
}

$("notice-button").addEventListener("click", () => {
  const kind = document.body.dataset.notice;
  if (kind === "detector") location.reload();
  else begin();
});

function pill(text, warn = false) {
  if ($("pill").textContent !== text) $("pill").textContent = text;
  $("pill").classList.toggle("warn", warn);
}

function tell(text, bad = false) {
  $("told").textContent = text;
  $("told").classList.toggle("bad", bad);
}

// -- Camera and hand -------------------------------------------------------------------------------
let detect = null;

async function begin() {
  s.mine = true;
  notice("starting");
  await ask("open", {page});
  await refresh();
  if (!hasSimd()) return notice("simd");
  s.pace = new Pace(s.server.rate);
  try {
    if (!video.srcObject?.active) {
      const stream = await openCamera(video);
      for (const track of stream.getTracks()) track.addEventListener("ended", () => notice("none"));
    }
  } catch (error) {
    return notice(error.kind ?? "busy");
  }
  try {
    detect ??= await openDetector(hands => { s.hands = hands; });
    await detect(video);
  } catch {
    return notice("detector");
  }
  notice(null);
  $("go").disabled = false;
  if (s.server.model) openModel();
  if (!s.detecting) watch();
}

async function watch() {
  s.detecting = true;
  let shown = -1;
  while (s.mine && video.srcObject?.active && !document.body.dataset.notice) {
    await new Promise(next => { document.hidden ? setTimeout(next, 200) : requestAnimationFrame(next); });
    if (video.currentTime === shown || video.readyState < 2) continue;
    shown = video.currentTime;
    const now = performance.now() / 1000;
    try {
      await detect(video);
    } catch {
      notice("detector");
      break;
    }
    const hand = followed(s.hands, now - s.lastAt < 1 ? s.last : null);
    if (hand) { s.last = hand; s.lastAt = now; }
    s.rates.push(now);
    if (s.rates.length > 20) s.rates.shift();
    for (const frame of s.pace.add(now, hand)) took(frame);
    show(hand);
  }
  s.detecting = false;
}

/** A frame at an even pace, or null without a hand. */
function took(frame) {
  if (s.mode === "recording") {
    s.frames.push(frame && Array.from(frame, place => Math.round(place * 1e5) / 1e5));
    const share = s.frames.length / s.wanted;
    $("recorded").firstElementChild.style.transform = `scaleX(${Math.min(1, share)})`;
    if (s.frames.length >= s.wanted) finishClip();
  }
  if (s.stream && s.step === "try") recognise(frame);
}

function show(hand) {
  if (s.replay) return;
  const area = cleared(overlay), at = within(video, area), width = Math.max(4, area.width / 150);
  for (const other of s.hands) if (other !== hand) drawHand(area.pen, other, s.server, at, width, true);
  if (hand) drawHand(area.pen, hand, s.server, at, width);
  if (!hand) pill("No hand in the picture", s.mode === "recording");
  else if (s.hands.length > 1) pill("Two hands: only the coloured one counts. Hide the other.", true);
  else pill("");
  const many = s.rates.length - 1, fps = many / (s.rates[many] - s.rates[0]);
  if (many > 5) $("rate").textContent = `${fps.toFixed(0)} hands a second`;
}

// -- Gestures --------------------------------------------------------------------------------------
function gestures() {
  const found = s.server.gestures.map(each => ({...each}));
  const {nothing} = s.server;
  if (!found.some(each => each.name === nothing)) found.push({name: nothing, clips: []});
  for (const name of s.drafts) if (!found.some(each => each.name === name)) found.push({name, clips: []});
  return found.sort((a, b) => (a.name === nothing) - (b.name === nothing));
}

const made = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};

const seen = new Map();  // frames by file

function showGestures() {
  const all = gestures(), focused = document.activeElement?.dataset?.gesture;
  if (!all.some(each => each.name === s.chosen)) s.chosen = all[0]?.name ?? null;
  $("gestures").replaceChildren(...all.map(({name, clips}) => {
    const card = made("div", undefined, "gesture"), head = made("button", undefined, "head");
    const chosen = name === s.chosen;
    card.classList.toggle("chosen", chosen);
    head.type = "button";
    head.dataset.gesture = name;
    head.setAttribute("role", "radio");
    head.setAttribute("aria-checked", String(chosen));
    head.tabIndex = chosen ? 0 : -1;
    const few = name === s.server.nothing ? 2 : 10;
    head.append(made("i"), made("b", name), made("span",
      clips.length >= few ? `${clips.length} clips` : `${clips.length} of ${few}`));
    card.addEventListener("click", event => { if (!event.target.closest(".clips")) choose(name); });
    const list = made("ul", undefined, "clips");
    for (const clip of clips) list.append(clipItem(name, clip));
    card.append(head, list);
    return card;
  }));
  if (focused) [...document.querySelectorAll("[data-gesture]")].find(e => e.dataset.gesture === focused)?.focus();
  $("where").textContent = `Clips: ${s.server.folder}`;
  $("go").textContent = s.chosen ? `Record “${s.chosen}”` : "Record";
  showReady();
}

function clipItem(name, {file}) {
  const item = made("li"), see = made("button", undefined, "see"), picture = made("canvas");
  const drop = made("button", "×", "drop");
  see.type = drop.type = "button";
  see.setAttribute("aria-label", `Replay a clip of ${name}`);
  drop.setAttribute("aria-label", `Discard a clip of ${name}`);
  see.append(picture);
  see.addEventListener("click", async () => replay(await framesOf(file), 1));
  drop.addEventListener("click", () => ask("clips/remove", {file}).then(refresh, failed));
  item.append(see, drop);
  framesOf(file).then(frames => requestAnimationFrame(() => thumbnail(picture, frames, s.server)), () => {});
  return item;
}

async function framesOf(file) {
  if (!seen.has(file)) seen.set(file, (await ask("clips/frames", {file})).frames);
  return seen.get(file);
}

function choose(name) {
  s.chosen = name;
  showGestures();
}

$("gestures").addEventListener("keydown", event => {
  const by = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
  if (!by) return;
  event.preventDefault();
  const names = gestures().map(each => each.name);
  choose(names[(names.indexOf(s.chosen) + by + names.length) % names.length]);
  document.querySelector("[data-gesture][aria-checked=true]")?.focus();
});

$("new").addEventListener("submit", event => {
  event.preventDefault();
  const name = $("name").value.trim().replace(/\s+/g, " ");
  if (!name) return;
  s.drafts.push(name);
  $("name").value = "";
  choose(name);
  $("go").focus();
});

// -- Recording -------------------------------------------------------------------------------------
const wait = seconds => new Promise(done => setTimeout(done, 1000 * seconds));

async function record() {
  if (s.mode !== "idle" || $("go").disabled || !s.chosen) return;
  s.name = s.chosen;
  s.left = Number($("row").value);
  await next();
}

async function next() {
  s.mode = "count";
  s.replay = null;
  stage.classList.remove("replaying");
  $("review").hidden = true;
  $("go").textContent = "Stop";
  tell(`“${s.name}”`);
  for (let left = Number($("wait").value); left > 0; left--) {
    $("count").textContent = left;
    await wait(1);
    if (s.mode !== "count") return;
  }
  $("count").textContent = "";
  s.frames = [];
  s.wanted = Math.round(Number($("seconds").value) * s.server.rate);
  s.mode = "recording";
  stage.classList.add("recording");
}

function stopClip() {
  s.mode = "idle";
  s.left = 0;
  $("count").textContent = "";
  stage.classList.remove("recording");
  $("recorded").firstElementChild.style.transform = "scaleX(0)";
  $("go").textContent = `Record “${s.chosen}”`;
  $("go").disabled = false;
}

async function finishClip() {
  const frames = s.frames, left = s.left - 1, many = Number($("row").value) > 1;
  stopClip();
  const hands = frames.filter(frame => frame);
  if (hands.length < 0.6 * frames.length || hands.length < 5)
    return tell(`The hand was seen in ${hands.length} of ${frames.length} frames only. Keep it in the picture, and try again.`, true);
  if (many) {
    await keep(frames);
    s.left = left;
    if (left > 0 && s.mode === "idle") { await wait(0.4); await next(); }
    return;
  }
  s.mode = "review";
  s.kept = frames;
  $("review").hidden = false;
  $("keep").focus();
  tell("");
  replay(hands);
}

async function keep(frames = s.kept) {
  endReview();
  try {
    const {file} = await ask("clips", {name: s.name, frames});
    seen.set(file, frames.filter(frame => frame));
    tell(`Kept a clip of “${s.name}”.`);
    await refresh();
  } catch (error) {
    failed(error);
  }
}

function discard() {
  endReview();
  tell("Discarded.");
}

function endReview() {
  s.mode = "idle";
  s.replay = null;
  $("review").hidden = true;
  stage.classList.remove("replaying");
  $("go").textContent = `Record “${s.chosen}”`;
}

function failed(error) { tell(error.message, true); }

function replay(frames, times = Infinity) {
  const run = s.replay = {};
  stage.classList.add("replaying");
  pill("Replay");
  let begun = null;
  requestAnimationFrame(function draw(now) {
    if (s.replay !== run) return;
    begun ??= now;
    const t = (now - begun) / 1000 * s.server.rate;
    if (t >= frames.length * times) {
      s.replay = null;
      return stage.classList.remove("replaying");
    }
    const area = cleared(overlay);
    drawHand(area.pen, frames[Math.floor(t) % frames.length], s.server, within(video, area), Math.max(4, area.width / 150));
    requestAnimationFrame(draw);
  });
}

$("go").addEventListener("click", () => {
  if (s.mode === "count" || s.mode === "recording") { stopClip(); tell("Stopped."); }
  else if (s.mode === "review") { discard(); record(); }
  else record();
});
$("keep").addEventListener("click", () => keep());
$("discard").addEventListener("click", discard);

document.addEventListener("keydown", event => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  if (s.step !== "record") return;
  if (key === " " && !event.target.matches("button:not(#go), a")) { event.preventDefault(); $("go").click(); }
  if (s.mode === "review" && key === "k") keep();
  if (s.mode === "review" && key === "d") discard();
});

// -- Training --------------------------------------------------------------------------------------
const percent = share => `${(100 * share).toFixed(0)} %`;
const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function showReady() {
  const own = s.server.gestures.filter(each => each.name !== s.server.nothing && each.clips.length);
  const clips = own.reduce((sum, each) => sum + each.clips.length, 0);
  const lacks = [];
  if (own.length < 2) lacks.push("two gestures");
  if (own.some(each => each.clips.length < 2)) lacks.push("two clips of each gesture");
  if (!s.server.gestures.some(each => each.name === s.server.nothing)) lacks.push(`a clip of “${s.server.nothing}”`);
  $("ready").textContent = lacks.length
    ? `Still needed: ${lacks.join(", ")}. Go back to Record.`
    : `${counted(own.length, "gesture")}, ${counted(clips, "clip")}. Training takes about a minute. ` +
      "Most connections are removed on the way; each that stays lies on a path from a joint to a gesture.";
  $("start").disabled = lacks.length > 0;
}

function showTraining() {
  const {training, model} = s.server, running = training.state === "running";
  $("start").hidden = running;
  $("stop").hidden = !running;
  $("progress").hidden = !running;
  $("progress").firstElementChild.value = training.share ?? 0;
  $("phase").textContent = running ? `${training.phase}…` : "";
  $("failed").hidden = training.state !== "failed";
  $("failed").textContent = training.why ?? "";
  $("start").textContent = model ? "Train again" : "Train";
  $("results").hidden = !model || running;
  if (model && model.number !== s.model?.number) {
    s.model = model;
    showResults(model);
    openModel();
  }
  if (running && !s.polling) poll();
}

async function poll() {
  s.polling = true;
  while (s.mine && s.server.training.state === "running") {
    await wait(0.5);
    try { await refresh(); } catch { break; }
  }
  s.polling = false;
}

function showResults(model) {
  $("accuracy").textContent = percent(model.accuracy);
  $("judged").textContent = `of ${counted(model.judged, "clip")} left out of training are named correctly`;
  $("honest").textContent = (model.bySession
    ? `Whole sessions were left out in turn (${model.sessions} sessions). `
    : "All clips are of one session, so this is optimistic: another day, light or person is harder. Record again tomorrow for a fair figure. ") +
    (model.judged < 30 ? `${counted(model.judged, "clip")} are few: one more mistake is ${percent(1 / model.judged)}.` : "");
  const confused = model.confusions.map(({truth, taken_for, count, of}) => {
    const item = made("li");
    item.append(made("b", truth), made("span", `${count} of ${of} taken for ${taken_for}`));
    return item;
  });
  $("confused").replaceChildren(...confused);
  $("confused-title").hidden = !confused.length;
  const more = model.record.map(({name, why}) => {
    const item = made("li"), button = made("button", "Record ten more");
    button.type = "button";
    button.addEventListener("click", () => { $("row").value = "10"; choose(name); go("record"); });
    item.append(made("b", name), made("span", why), button);
    return item;
  });
  $("more").replaceChildren(...more);
  $("more-title").hidden = !more.length;
}

$("start").addEventListener("click", async () => {
  $("start").hidden = true;
  try { await ask("train", {page}); } catch (error) { $("failed").hidden = false; $("failed").textContent = error.message; }
  await refresh();
});
$("stop").addEventListener("click", () => ask("stop", {page}).then(refresh));
$("to-try").addEventListener("click", () => go("try"));

// -- Trying ----------------------------------------------------------------------------------------
async function openModel() {
  const model = s.model = s.server.model;
  const answer = await fetch(`made/model.wasm?${model.number}`, {headers: {"X-Page": page}});
  const bytes = await answer.arrayBuffer();
  s.network = await openNetwork(bytes);
  s.stream = openStream(s.network);
  s.names = model.classes;
  $("untrained").hidden = true;
  $("live").hidden = false;
  s.bars = s.names.map(name => {
    const item = made("li", undefined, name === s.server.nothing ? "nothing" : "");
    const track = made("div", undefined, "track"), bar = made("i"), limit = made("u"), share = made("output");
    limit.title = "threshold";
    limit.style.left = `${100 * model.threshold}%`;
    track.append(bar, ...(name === s.server.nothing ? [] : [limit]));
    item.append(made("span", name), track, share);
    return {item, bar, share};
  });
  $("bars").replaceChildren(...s.bars.map(each => each.item));
  const took = await measured(bytes);
  const kb = count => `${(count / 1024).toFixed(1)} KB`;
  const rows = {
    "connections kept": `${model.kept.toLocaleString("en")} of ${model.total.toLocaleString("en")}`,
    "time for a frame": `${took.toFixed(0)} µs`, "WebAssembly": kb(model.wasm),
    "tables in C": kb(model.flash), "memory of the stream": kb(s.stream.bytes),
    "windows": `${model.windows.join(", ")} frames`,
  };
  $("cost").replaceChildren(...Object.entries(rows).map(([name, value]) => {
    const row = made("div");
    row.append(made("dt", name), made("dd", value));
    return row;
  }));
  $("folder").textContent = s.server.folder;
  $("command").textContent = `trellis data info csv:${s.server.folder}`;
}

/** Microseconds for a frame, in a network of its own: the fastest of a few rounds. */
async function measured(bytes) {
  const other = openStream(await openNetwork(bytes));
  const frame = Float32Array.from({length: 63}, (_, i) => Math.sin(i));
  for (let i = 0; i < 200; i++) other.push(frame);
  return Math.min(...Array.from({length: 5}, () => {
    const began = performance.now();
    let count = 0;
    while (performance.now() - began < 6) for (let i = 0; i < 20; i++, count++) other.push(frame);
    return 1000 * (performance.now() - began) / count;
  }));
}

function recognise(frame) {
  const event = s.stream.push(frame), {shares, active} = s.stream;
  s.names.forEach((_, i) => {
    const share = shares?.[i] ?? 0, {bar, share: output} = s.bars[i];
    bar.style.transform = `scaleX(${share})`;
    output.textContent = percent(share);
  });
  const name = active >= 0 ? s.names[active] : s.server.nothing;
  if ($("now").textContent !== name) $("now").textContent = name;
  $("now").classList.toggle("nothing", active < 0);
  $("named").hidden = active < 0;
  if (active >= 0) {
    $("named").firstElementChild.textContent = name;
    $("named").lastElementChild.textContent = percent(shares?.[active] ?? 0);
  }
  if (!event) return;
  const item = made("li", s.names[event.label]);
  const long = (event.end - event.start + 1) / s.server.rate;
  item.append(made("span", `${percent(event.probability)}, ${long.toFixed(1)} s`));
  $("log").prepend(item);
  while ($("log").children.length > 12) $("log").lastElementChild.remove();
  s.events.push({name: s.names[event.label], ...event});
}

// -- Steps -----------------------------------------------------------------------------------------
function go(step) {
  if (s.mode === "count" || s.mode === "recording") stopClip();
  if (s.mode === "review") discard();
  s.step = step;
  for (const panel of document.querySelectorAll("[data-panel]")) panel.hidden = panel.dataset.panel !== step;
  for (const button of document.querySelectorAll("nav button"))
    button.dataset.step === step ? button.setAttribute("aria-current", "step") : button.removeAttribute("aria-current");
  if (step === "try") s.stream?.begin();
  else $("named").hidden = true;
  $("panel").focus({preventScroll: true});
}
for (const button of document.querySelectorAll("nav button"))
  button.addEventListener("click", () => go(button.dataset.step));

setInterval(() => { if (s.mine && !document.hidden && !s.polling && s.mode !== "recording") refresh().catch(() => {}); }, 2000);
window.trellisLive = s;  // for the console
begin().catch(error => failed(error));
