// Clips from video files: the page of `trellis record`. Names and errors are shown as text, never as HTML.
// @ts-check
import {followed, hasSimd, openDetector} from "./camera.js";
import {cleared, drawHand, within} from "./hand.js";

const $ = id => document.getElementById(id);
const page = crypto.randomUUID();
const video = $("video");
const LOST = 1;  // seconds after which another hand may be followed
let server = null, hands = [], rows = [];

async function ask(path, body) {
  const answer = await fetch(path, {method: "POST", body: JSON.stringify({page, ...body}), cache: "no-store"});
  const text = await answer.text(), found = text ? JSON.parse(text) : {};
  if (!answer.ok) throw new Error(found.error ?? `the server refused (${answer.status})`);
  return found;
}

function notice(title, text = "") {
  $("notice").hidden = !title;
  $("notice-title").textContent = title;
  $("notice-text").textContent = text;
}

/** Wait for an event of the video; throws if it cannot be played. */
function until(name, begin) {
  return new Promise((done, failed) => {
    video.onerror = () => failed(new Error("this browser cannot play it; convert it to WebM or MP4 (H.264)"));
    video[`on${name}`] = done;
    begin();
  });
}

const seek = time => until("seeked", () => { video.currentTime = time; });

async function load(number) {
  await until("loadeddata", () => { video.src = `videos/${number}`; });
  if (!video.videoWidth) throw new Error("it has no picture");
  if (!Number.isFinite(video.duration)) await seek(1e7);  // some files tell their length at the end only
}

/** Read a video: a clip of all of it, or clips of `server.cut` frames. */
async function read(number, detect, progress) {
  await load(number);
  const {rate, cut, longest} = server;
  const count = Math.floor(video.duration * rate);
  if (!cut && count > longest)
    throw new Error(`it takes ${video.duration.toFixed(0)} s, and a clip ${longest / rate} s at most; add --cut SECONDS`);
  const size = cut ?? count;
  let frames = [], last = null, lastAt = -LOST;
  detect.reset();
  for (let k = 0; k < count; k++) {
    const time = (k + 0.5) / rate;
    await seek(time);
    await detect(video);
    const hand = followed(hands, time - lastAt < LOST ? last : null);
    if (hand) { last = hand; lastAt = time; }
    show(hand);
    frames.push(hand && Array.from(hand, place => Math.round(place * 1e5) / 1e5));
    progress((k + 1) / count);
    if (frames.length < size && k + 1 < count) continue;
    // What is left at the end makes a clip if it is half as long as the others.
    if (frames.length >= size / 2) await ask(`videos/${number}/clip`, {frames}).catch(ignoredIfOpen);
    frames = [];
  }
}

/** A clip without a hand is left out, and the server says so at the end; another page is an error. */
function ignoredIfOpen(error) {
  if (error.message.includes("open elsewhere")) throw error;
}

function show(hand) {
  const area = cleared($("overlay")), at = within(video, area), width = Math.max(4, area.width / 150);
  for (const other of hands) if (other !== hand) drawHand(area.pen, other, server, at, width, true);
  if (hand) drawHand(area.pen, hand, server, at, width);
  $("pill").textContent = hand ? "" : "No hand in the picture";
}

function told(row, text, bad = false) {
  row.textContent = text;
  row.classList.toggle("bad", bad);
}

function list() {
  rows = server.videos.map(() => document.createElement("span"));
  $("files").replaceChildren(...server.videos.map(({name, gesture, over}, i) => {
    const item = document.createElement("li"), head = document.createElement("b");
    head.textContent = name;
    told(rows[i], over ? "read" : gesture);
    item.append(head, rows[i]);
    return item;
  }));
}

async function begin() {
  server = await ask("open", {});
  list();
  if (!hasSimd())
    return notice("This browser is too old", "The hand detector needs WebAssembly with SIMD. Use Chromium 91, Firefox 89, Safari 16.4, or later.");
  let detect;
  try {
    detect = await openDetector(found => { hands = found; });
  } catch {
    return notice("The hand detector did not start", "Reload the page. If that does not help, run: trellis live --set-up");
  }
  notice("");
  let clips = 0;
  for (const [i, {gesture, over}] of server.videos.entries()) {
    if (over) continue;
    let why;
    try {
      await read(i, detect, share => {
        told(rows[i], `${gesture}, ${(100 * share).toFixed(0)} %`);
        $("share").value = (i + share) / server.videos.length;
      });
    } catch (error) {
      if (error.message.includes("open elsewhere")) throw error;
      why = error.message;
    }
    const {clips: kept} = await ask(`videos/${i}/end`, why === undefined ? {} : {why});
    told(rows[i], kept ? `${kept} ${kept === 1 ? "clip" : "clips"} of ${gesture}` : why ?? "no clip: the hand was not seen", !kept);
    clips += kept;
  }
  video.removeAttribute("src");
  $("share").value = 1;
  $("title").textContent = `Done: ${clips} ${clips === 1 ? "clip" : "clips"}`;
  notice("Done", "The command goes on in the terminal. You can close this page.");
}

begin().catch(error => notice("Stopped", error.message === "Failed to fetch" ? "The command in the terminal has stopped." : error.message));
