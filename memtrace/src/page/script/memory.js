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
 * @property {View} view
 * @property {Clock} clock
 * @property {Stack[]} stacks
 * @property {Steps[]} lines
 * @property {Overlay} overlay
 */

/**
 * @param {PageDocument} doc
 * @returns {Recorded}
 */
function recorded(doc) {
  const { curves } = doc;
  const seconds = instants(curves.time_ns);
  const end = Math.max(curves.end_ns / NS || 0, seconds[seconds.length - 1] ?? 0);
  const begin = Math.min(0, seconds[0] ?? 0);
  return {
    doc,
    view: new View(begin, end),
    clock: new Clock(curves.start_unix_ns, end),
    stacks: curves.stacks.map((stack) => stackOf(stack, seconds)),
    lines: curves.lines.map((one) => steps(one, seconds)),
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
  const { doc, view, stacks, lines, overlay } = all;
  if (doc.curves.time_ns.length === 0 || stacks.length === 0) {
    const nothing = section('memory', 'Memory over time');
    nothing.append(el('p', { class: 'alert' }, 'The recording has no row of memory, so there is nothing to draw.'));
    return nothing;
  }
  const limits = doc.curves.limits.map(({ label, series }) => ({
    ...steps(series, instants(series.time_ns)),
    name: label,
  }));
  let chosen = stacks.find(({ by }) => by === 'role') ?? /** @type {typeof stacks[0]} */ (stacks[0]);
  const isOn = new Set(['held', ...limits.map(({ id }) => id)]);

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
        colour: colours.ground('ink'),
        width: series.id === chosen.total ? 1.5 : 1,
        ...(series.id === chosen.total ? { isEdge: readout.hidden.size === 0 } : { dash: series.id === 'held' ? [5, 3] : [2, 2] }),
      })),
    ...limits
      .filter(({ id }) => isOn.has(id))
      .map((series) => ({ series, colour: limitColour(series), width: 1.5, dash: [7, 4], isLimit: true })),
  ];
  const update = () => {
    const series = ordered();
    const colourOf = new Map(chosen.series.map((one, place) => [one, colours.series(chosen.by, one, place)]));
    const entry = (/** @type {Steps} */ one) => ({ series: one, colour: colourOf.get(one) ?? '' });
    const layers = series.filter(({ id }) => !readout.hidden.has(id));
    chart.show({ layers, layerColours: layers.map((one) => colourOf.get(one) ?? ''), lines: drawnLines() });
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
    tools: [views, lineSwitches(lines, limits, isOn, update), button('show all', () => view.reset(), { class: 'reset' })],
    csv: () => curveCsv(`memory-by-${chosen.by}`, [...chosen.series, ...lines]),
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

/** @param {Steps} limit */
function limitColour({ id }) {
  return colours.ground(id.startsWith('limit') ? 'alert' : 'warn');
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
    return el('label', {}, input, ' ', named(series.name, 32));
  });
  return el('fieldset', { class: 'choices' }, el('legend', {}, 'lines'), ...switches);
}

/**
 * Phases that are open at an instant, and flags close to it.
 * @param {Recorded} all
 * @param {number} instant
 * @returns {Child[]}
 */
function wordsAt({ overlay, view }, instant) {
  const phases = overlay.phasesAt(instant).map(({ name }) => shorten(name, 40));
  const flags = overlay.flagsNear(instant, (view.to - view.from) / 150).slice(0, 4);
  return [
    phases.length > 0 && `in ${phases.join(' › ')}`,
    ...flags.map(({ seconds, text }) => `${after(seconds)}: ${shorten(text, 200)}`),
  ].filter(Boolean);
}

/**
 * @param {string} name
 * @param {Steps[]} series
 * @returns {Csv}
 */
function curveCsv(name, series) {
  const seconds = series[0]?.seconds ?? new Float64Array();
  function* rows() {
    for (let place = 0; place < seconds.length; place += 1) {
      const values = series.map(({ values }) => {
        const value = values[place];
        return Number.isNaN(value) ? null : value;
      });
      yield [seconds[place], ...values];
    }
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
