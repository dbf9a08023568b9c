(async () => {
  "use strict";
  const $ = id => document.getElementById(id), SHOWN = 5;
  const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const data = JSON.parse($("content").textContent), {classes, joints, scene} = data;
  const kb = count => (count / 1000).toFixed(1) + " KB";
  const packed = new Blob([bytes($("wasm").textContent)]).stream();
  const unpacked = new Response(packed.pipeThrough(new DecompressionStream("deflate")));
  const network = await openNetwork(await unpacked.arrayBuffer());
  const clips = scene.clips.map(clip => {
    const levels = new DataView(bytes(clip.data).buffer);
    const places = new Float32Array(levels.byteLength / 2);
    for (let i = 0; i < places.length; i++)
      places[i] = clip.centre[i % 3] + clip.step * levels.getInt16(2 * i, true);
    return {...clip, places, radius: 32767 * 1.4 * clip.step};
  });
  const stage = $("stage"), pen = stage.getContext("2d"), slider = $("frame");
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const state = {clip: clips[0], frame: 0, playing: !still, turn: 0, tilt: 0};

  // -- The skeleton --------------------------------------------------------------------------
  function viewed(x, y, z) {  // turned about the vertical, then tilted towards the viewer
    const [right, up, near] = scene.turn.map(row => row[0] * x + row[1] * y + row[2] * z);
    const a = state.turn, b = state.tilt;
    const side = right * Math.cos(a) - near * Math.sin(a);
    const front = right * Math.sin(a) + near * Math.cos(a);
    return [side, up * Math.cos(b) - front * Math.sin(b), up * Math.sin(b) + front * Math.cos(b)];
  }

  function points(width, height) {
    const {places, centre, radius} = state.clip, zoom = 0.46 * Math.min(width, height) / radius;
    return joints.map((_, j) => {
      const i = 3 * (joints.length * Math.floor(state.frame) + j);
      const [x, y, z] = viewed(...centre.map((c, k) => places[i + k] - c));
      return [width / 2 + zoom * x, height / 2 - zoom * y, z / radius];
    });
  }

  function draw() {
    const ratio = devicePixelRatio || 1, width = stage.clientWidth, height = stage.clientHeight;
    stage.width = width * ratio; stage.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement), at = points(width, height);
    const colour = joint => style.getPropertyValue("--c" + scene.branches[joint] % 6);
    const depth = z => 0.75 + 0.25 * Math.max(-1, Math.min(1, z));
    const middle = ([p, q]) => at[p][2] + at[q][2];
    pen.lineCap = "round"; pen.lineWidth = 4;
    for (const [parent, joint] of scene.bones.slice().sort((a, b) => middle(a) - middle(b))) {
      pen.globalAlpha = depth(middle([parent, joint]) / 2); pen.strokeStyle = colour(joint);
      pen.beginPath(); pen.moveTo(at[parent][0], at[parent][1]);
      pen.lineTo(at[joint][0], at[joint][1]); pen.stroke();
    }
    at.forEach(([x, y, z], joint) => {
      pen.globalAlpha = depth(z); pen.fillStyle = colour(joint);
      pen.beginPath(); pen.arc(x, y, 4.5, 0, 7); pen.fill();
    });
    pen.globalAlpha = 1;
    if (!state.at) return;
    const away = at.map(p => Math.hypot(p[0] - state.at[0], p[1] - state.at[1]));
    const near = away.indexOf(Math.min(...away));
    if (away[near] < 14) {
      pen.font = "14px system-ui, sans-serif"; pen.fillStyle = style.getPropertyValue("--ink");
      pen.fillText(joints[near], at[near][0] + 9, at[near][1] - 9);
    }
  }

  // -- What the network says -----------------------------------------------------------------
  const bars = Array.from({length: Math.min(SHOWN, classes.length)}, () => {
    const row = document.createElement("li"), name = document.createElement("span");
    const meter = document.createElement("meter"), share = document.createElement("output");
    row.append(name, meter, share); $("bars").append(row);
    return {name, meter, share};
  });
  const percent = share => (100 * share).toFixed(1) + " %";

  function classify(frames) {
    return network.shares(network.recorded(state.clip.places, frames));
  }

  function tell() {
    const frames = Math.floor(state.frame) + 1, shares = classify(frames), {label} = state.clip;
    const order = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]);
    bars.forEach(({name, meter, share}, place) => {
      name.textContent = classes[order[place]]; meter.value = shares[order[place]];
      share.textContent = percent(shares[order[place]]);
    });
    $("best").textContent = classes[order[0]]; $("sure").textContent = percent(shares[order[0]]);
    $("best").className = classes[order[0]] === label ? "right" : "";
    slider.value = frames; $("count").textContent = `${frames} of ${state.clip.frames}`;
    $("play").textContent = state.playing ? "Pause" : "Play";
  }

  function time() {  // clocks in browsers are coarse: many inferences, and the fastest of a few
    const {places, frames} = state.clip, {wasm} = network;
    const mean = work => Math.min(...Array.from({length: 5}, () => {
      const began = performance.now();
      let count = 0;
      while (performance.now() - began < 8) for (let i = 0; i < 50; i++, count++) work();
      return 1000 * (performance.now() - began) / count;
    })).toFixed(1);
    const whole = mean(() => network.recorded(places, frames)), at = wasm.scratch();
    const alone = mean(() => wasm.run(at));
    $("timing").textContent = `${alone} µs an inference here; ${whole} µs with its input made ` +
      `from ${frames} frames.`;
  }

  function show() { draw(); tell(); }

  function choose(number) {
    const clip = state.clip = clips[number];
    state.frame = still ? clip.frames - 1 : 0; slider.max = clip.frames;
    $("truth").textContent = clip.label === null ? "" : "It is: " + clip.label;
    show();
  }

  // -- Controls ------------------------------------------------------------------------------
  function step(by) {
    state.playing = false;
    state.frame = (Math.floor(state.frame) + by + state.clip.frames) % state.clip.frames; show();
  }
  function toggle() { state.playing = !state.playing; show(); }
  clips.forEach(({name, label}, i) => $("clip").add(new Option(label ?? name, i)));
  $("clip").addEventListener("change", event => choose(Number(event.target.value)));
  $("play").addEventListener("click", toggle);
  slider.addEventListener("input", () => {
    state.playing = false; state.frame = slider.value - 1; show();
  });
  document.addEventListener("keydown", event => {
    if (event.target.matches("button, input, select")) return;
    if (event.key === " ") { event.preventDefault(); toggle(); }
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
  stage.addEventListener("pointerdown", event => {
    state.pointer = [event.clientX, event.clientY]; stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", event => {
    const box = stage.getBoundingClientRect(), {clientX, clientY} = event;
    state.at = [clientX - box.left, clientY - box.top];
    if (state.pointer) {
      state.turn -= (clientX - state.pointer[0]) / 115;
      state.tilt = Math.max(-1.57, Math.min(1.57, state.tilt + (clientY - state.pointer[1]) / 115));
      state.pointer = [clientX, clientY];
    }
    draw();
  });
  for (const end of ["pointerup", "pointercancel"])
    stage.addEventListener(end, () => { state.pointer = null; });
  stage.addEventListener("pointerleave", () => { state.at = null; draw(); });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  let before = null;
  function tick(now) {
    if (state.playing && before !== null) {
      const shown = Math.floor(state.frame);
      state.frame = (state.frame + (now - before) / 1000 * scene.fps) % state.clip.frames;
      if (Math.floor(state.frame) !== shown) show();
    }
    before = now; requestAnimationFrame(tick);
  }

  $("title").textContent = data.title;
  $("about").textContent = `${data.weights.toLocaleString("en")} weights (${data.values}) and ` +
    `all that runs them are ${kb(data.bytes)} of WebAssembly within this page. Nothing is ` +
    "fetched or sent." +
    (scene.source && ` Recordings: ${scene.source}.`);
  window.trellis = {network, classes, clips, choose, classify};  // for the console
  choose(0);
  time();
  requestAnimationFrame(tick);
})().catch(error => {
  document.getElementById("about").textContent = `This browser cannot run the network: ${error}`;
});
