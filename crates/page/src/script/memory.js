// Memory over time: stacked by what the reader chooses, with limits, phases and flags.

const BY_WORDS = { role: 'role', kind: 'kind of memory', process: 'process', cgroup: 'cgroup' };

/**
 * Series that add up to the line `total`; they are decoded when they are first looked at.
 * @typedef {{ by: string, label: string, total: string, readonly series: Steps[] }} Stack
 */

/**
 * What all pictures over time of one recording are made of.
 * @typedef {object} Recorded
 * @property {PageDocument} doc
 * @property {Curves} curves
 * @property {View} view
 * @property {Clock} clock
 * @property {Stack[]} stacks
 * @property {Steps[]} lines
 * @property {Bounds | null} band What is held is within it; null where that is known exactly.
 * @property {Overlay} overlay
 */

/** @type {Curves} */
const NO_CURVES = { start_unix_ns: null, end_ns: 0, time_ns: [], stacks: [], lines: [], bounds: [], limits: [], gpus: [] };

/**
 * @param {PageDocument} doc
 * @returns {Recorded}
 */
function recorded(doc) {
  const curves = doc.curves ?? NO_CURVES;
  const seconds = instants(curves.time_ns);
  const end = Math.max(curves.end_ns / NS || 0, seconds[seconds.length - 1] ?? 0);
  const begin = Math.min(0, seconds[0] ?? 0);
  const lines = curves.lines.map((one) => steps(one, seconds));
  return {
    doc,
    curves,
    view: new View(begin, end),
    clock: new Clock(curves.start_unix_ns, end),
    stacks: curves.stacks.map((stack) => stackOf(stack, seconds)),
    lines,
    band: bandOf(lines, curves.bounds.map((one) => steps(one, seconds))),
    overlay: new Overlay(doc.bands, doc.flags),
  };
}

/**
 * @param {Curves['stacks'][0]} written
 * @param {Float64Array} seconds
 * @returns {Stack}
 */
function stackOf({ by, label, total, series }, seconds) {
  /** @type {Steps[] | null} */
  let decoded = null;
  return {
    by,
    label,
    total,
    get series() {
      decoded ??= series.map((one) => steps(one, seconds));
      return decoded;
    },
  };
}

/**
 * @param {Steps[]} lines
 * @param {Steps[]} bounds How far it can be below the line, and how far above.
 * @returns {Bounds | null}
 */
function bandOf(lines, [below, above]) {
  const held = lines.find(({ id }) => id === 'held');
  if (!held || !below || !above || ![below, above].some(({ values }) => values.some((amount) => amount > 0))) return null;
  const moved = (/** @type {Steps} */ by, /** @type {number} */ sign) => ({
    ...held,
    values: held.values.map((amount, place) => amount + sign * /** @type {number} */ (by.values[place])),
  });
  return { low: moved(below, -1), high: moved(above, 1) };
}

/**
 * The instant of the peak, as the report tells it.
 * @param {Recorded} all
 * @returns {[number, string]}
 */
function peakOf({ doc, view }) {
  const { peak } = doc.report;
  return peak ? [peak.at.offset_ns / NS, 'at the peak'] : [view.end, 'at the end'];
}

/** @param {Recorded} all */
function memorySection(all) {
  const { curves, view, stacks, lines, overlay } = all;
  if (curves.time_ns.length === 0 || stacks.length === 0) {
    const nothing = section('memory', 'Memory over time');
    nothing.append(el('p', { class: 'alert' }, 'The recording has no row of memory, so there is nothing to draw.'));
    return nothing;
  }
  const limits = limitLines(curves);
  let chosen = stacks.find(({ by }) => by === 'role') ?? /** @type {typeof stacks[0]} */ (stacks[0]);
  const isOn = new Set(['held', ...limits.filter(({ isOn }) => isOn).map(({ id }) => id)]);

  const chart = new Chart(view, {
    label: 'memory over time',
    height: 300 + overlay.height,
    top: overlay.height,
    overlay: (drawn) => overlay.draw(drawn),
  });
  const readout = new Readout(view, all.clock, {
    resting: () => peakOf(all),
    toggled: () => update(),
    more: (instant) => wordsAt(all, instant),
  });

  const ordered = () => [...chosen.series].sort((one, other) => rankOf(one) - rankOf(other));
  /** @returns {Line[]} */
  const drawnLines = () => [
    ...lines
      .filter(({ id }) => isOn.has(id) || id === chosen.total)
      .map((series) => ({
        series,
        colour: colours.ground(series.id === 'held' ? 'ink' : 'quiet'),
        width: series.id === 'held' ? 2 : 1,
        ...(series.id === chosen.total ? { isEdge: readout.hidden.size === 0 } : { hasHalo: true }),
        ...(series.id === 'swap' ? { dash: [2, 2] } : {}),
      })),
    ...limits
      .filter(({ id }) => isOn.has(id))
      .map((series) => ({ series, colour: limitColour(series), width: 1.5, dash: [7, 4], isLimit: true, isEdge: true, hasHalo: true })),
  ];
  const update = () => {
    const series = ordered();
    const colourOf = seriesColours(all.doc, chosen.by, chosen.series);
    const entry = (/** @type {Steps} */ one) => ({ series: one, colour: colourOf.get(one) ?? '' });
    const layers = series.filter(({ id }) => !readout.hidden.has(id));
    const band = isOn.has('held') ? all.band : null;
    chart.show({ layers, layerColours: layers.map((one) => colourOf.get(one) ?? ''), lines: drawnLines(), band });
    readout.show(series.map(entry), drawnLines());
  };

  const views = el('fieldset', { class: 'choices' }, el('legend', {}, 'by'));
  for (const stack of stacks) {
    const input = el('input', { type: 'radio', name: 'by', value: stack.by, checked: stack === chosen, onchange: () => {
      chosen = stack;
      readout.hidden.clear();
      update();
    } });
    const words = BY_WORDS[/** @type {keyof BY_WORDS} */ (stack.by)] ?? stack.by;
    views.append(el('label', { title: stack.label }, input, ` ${words}`));
  }
  const made = section('memory', 'Memory over time', {
    tools: [views, lineSwitches(lines.filter(({ id }) => stacks.some(({ total }) => total !== id)), limits, isOn, update), button('show all', () => view.reset(), { class: 'reset' })],
    csv: () => curveCsv(`memory-by-${chosen.by}`, [...chosen.series, ...lines, ...limits]),
  });
  made.append(
    el('div', { class: 'picture' }, chart.element, readout.element),
    el('p', { class: 'quiet hint' }, 'Drag to zoom, double click to show all, click to see what was held at an instant.',
      overlay.leftOut > 0 && ` ${counted(overlay.leftOut, 'more phase')} at the same time not drawn.`),
  );
  restyled(update);
  update();
  return made;
}

/**
 * What gathers the rest lies on top, then the order of the document.
 * @param {Steps} series
 */
function rankOf({ id }) {
  return id === 'rest' ? 1 : 0;
}

/**
 * What is in use of each limit, and the limit. Those of the node are off at first: it holds much
 * that the recording is not about.
 * @param {Curves} curves
 */
function limitLines({ limits }) {
  return limits.flatMap(({ by, time_ns, used, limit }, place) => {
    const seconds = instants(time_ns);
    const line = (/** @type {WrittenSeries} */ one, /** @type {string} */ what) => ({
      ...steps(one, seconds, NaN),
      id: `${what} ${place}`,
      isOn: by !== 'node',
      isRead: what === 'used',
    });
    const limited = line(limit, 'limit');
    return [...(limited.values.some((amount) => amount > 0) ? [limited] : []), line(used, 'used')];
  });
}

/** @param {Steps} limit */
function limitColour({ id }) {
  return colours.ground(id.startsWith('limit') ? 'alert' : 'ink');
}

// Processes of one role share its colour in these shades.
const SHADES = [0, 0.35, 0.18, 0.5];

/**
 * The colours of a stack: a process has that of its role.
 * @param {PageDocument} doc
 * @param {string} by
 * @param {Steps[]} series
 * @returns {Map<Steps, string>}
 */
function seriesColours(doc, by, series) {
  const roles = rolesByProcess(doc.report);
  /** @type {Map<string, number>} */
  const seen = new Map();
  return new Map(series.map((one) => {
    const role = by === 'process' && one.upid !== null ? roles.get(one.upid) : undefined;
    if (role === undefined) return [one, colours.series(by, one)];
    const before = seen.get(role) ?? 0;
    seen.set(role, before + 1);
    return [one, mixed(colours.of(role), colours.isDark ? '#14171c' : '#ffffff', SHADES[before % SHADES.length] ?? 0)];
  }));
}

/**
 * @param {Steps[]} lines
 * @param {Steps[]} limits
 * @param {Set<string>} isOn
 * @param {() => void} update
 */
function lineSwitches(lines, limits, isOn, update) {
  const switches = [...lines, ...limits].map((series) => {
    const input = el('input', { type: 'checkbox', value: series.id, checked: isOn.has(series.id), onchange: () => {
      if (!isOn.delete(series.id)) isOn.add(series.id);
      update();
    } });
    return el('label', {}, input, ' ', named(series.id === 'held' ? 'memory held' : series.name, 27));
  });
  return el('fieldset', { class: 'choices' }, el('legend', {}, 'lines'), ...switches);
}

/**
 * How sure what is held is at an instant, phases that are open then, and flags close to it.
 * @param {Recorded} all
 * @param {number} instant
 * @returns {Child[]}
 */
function wordsAt({ overlay, view, band }, instant) {
  const [low, high] = band ? [valueAt(band.low, instant), valueAt(band.high, instant)] : [null, null];
  const phases = overlay.phasesAt(instant).map(({ name }) => shorten(name, 40));
  const flags = overlay.flagsNear(instant, (view.to - view.from) / 150).slice(0, 4);
  return [
    low !== null && high !== null && bytes(low) !== bytes(high) && `held between ${bytes(low)} and ${bytes(high)}`,
    phases.length > 0 && `in ${phases.join(' › ')}`,
    ...flags.map(({ seconds, text }) => `${after(seconds)}: ${shorten(text, 200)}`),
  ].filter(Boolean);
}

/**
 * A row for each instant at which any of them changes.
 * @param {string} name
 * @param {Steps[]} series
 * @returns {Csv}
 */
function curveCsv(name, series) {
  const seconds = new Set([...new Set(series.map((one) => one.seconds))].flatMap((own) => [...own]));
  function* rows() {
    for (const at of Float64Array.from(seconds).sort()) yield [at, ...series.map((one) => valueAt(one, at))];
  }
  return { name, columns: ['offset_s', ...series.map((one) => `${one.name}${typeof one.pid === 'number' ? ` (${one.pid})` : ''}_bytes`)], rows: rows() };
}

/** @type {(() => void)[]} */
const restyling = [];

/**
 * Draws again when the colours change: another scheme, or paper.
 * @param {() => void} update
 */
function restyled(update) {
  restyling.push(update);
}
