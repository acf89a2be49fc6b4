// Numbered phases, the steps of a training loop: a small picture for each name, what was held at
// each end over the number, and the slope that the report found.

const STEP_POINTS = 300;

/** @param {Recorded} all */
function stepsSection(all) {
  const lines = all.doc.report.phases?.lines ?? [];
  const numbered = lines.filter(isRepeated).filter(({ steps: found }) => found !== null);
  if (numbered.length === 0) return null;
  const drawn = numbered.map((line) => ({ line, points: stepPoints(all, line) }));
  const made = section('steps', 'Steps', {
    about: 'What all recorded processes held at the end of each step, every page once, over its number; the line is the slope that the report found.',
    csv: () => ({
      name: 'steps',
      columns: ['name', 'step', 'end_s', 'held_bytes'],
      rows: drawn.flatMap(({ line, points }) => points.map(({ step, at, value }) => [line.name, step, at, value])),
    }),
  });
  const cards = el('div', { class: 'cards' });
  const update = () => cards.replaceChildren(...drawn.map(({ line, points }) => stepCard(line, points)));
  made.append(cards);
  restyled(update);
  update();
  return made;
}

/** @typedef {{ step: number, at: number, value: number }} StepPoint */

/**
 * What was held at the end of each step; of one that several processes pass the mean, as in the
 * report's slope.
 * @param {Recorded} all
 * @param {Repeated} line
 * @returns {StepPoint[]}
 */
function stepPoints({ doc, lines }, line) {
  const sum = lines.find(({ id }) => id === 'held');
  if (!sum || line.kind !== 'phase') return [];
  /** @type {Map<number, { at: number, values: number[] }>} */
  const found = new Map();
  for (const { stage, step, end_ns } of doc.bands) {
    if (step === null || stage !== line.name) continue;
    const at = end_ns / NS;
    const value = valueAt(sum, at);
    if (value === null) continue;
    const known = found.get(step);
    found.set(step, { at: Math.max(at, known?.at ?? at), values: [...(known?.values ?? []), value] });
  }
  const points = [...found].map(([step, { at, values }]) => ({ step, at, value: Math.round(mean(values)) }));
  return points.sort((one, other) => one.step - other.step);
}

/**
 * @param {Repeated} line
 * @param {StepPoint[]} points
 */
function stepCard(line, points) {
  const found = /** @type {NonNullable<Repeated['steps']>} */ (line.steps);
  const words = [
    found.tree && `host ${slopeWords(found.tree)}`,
    found.gpu && `GPUs ${slopeWords(found.gpu)}`,
  ].filter(Boolean);
  const grower = found.grower && `most of it: ${shorten(found.grower.name, 30)} ${found.grower.pid ?? ''} ${slopeWords(found.grower.slope)}`;
  return el(
    'figure',
    {},
    el('figcaption', {}, el('strong', {}, named(line.name, 40)), ` ${count(found.first)} to ${count(found.last)}`),
    points.length > 1 && stepDrawing(points, found.tree),
    el('p', {}, words.length ? words.join('; ') : 'no slope'),
    grower && el('p', { class: 'quiet' }, grower),
  );
}

/** @param {Slope} slope */
function slopeWords({ bytes_per_step, low_bytes_per_step, high_bytes_per_step }) {
  const range = low_bytes_per_step === null || high_bytes_per_step === null ? '' : ` (${change(low_bytes_per_step)} to ${change(high_bytes_per_step)})`;
  return `${change(Math.round(bytes_per_step))} a step${range}`;
}

/**
 * @param {StepPoint[]} points
 * @param {Slope | null} slope
 */
function stepDrawing(points, slope) {
  const [width, height] = [260, 90];
  const steps = points.map(({ step }) => step);
  const values = points.map(({ value }) => value);
  const [left, right] = [Math.min(...steps.slice(0, 1)), Math.max(...steps.slice(-1))];
  const ends = slope ? slopeLine(points, slope) : [];
  const all = [...values, ...ends.map(([, value]) => value)];
  const low = all.reduce((least, value) => Math.min(least, value), Infinity);
  const high = all.reduce((most, value) => Math.max(most, value), 0);
  const x = (/** @type {number} */ step) => 4 + ((width - 8) * (step - left)) / Math.max(1, right - left);
  const y = (/** @type {number} */ value) => height - 4 - ((height - 8) * (value - low)) / Math.max(1, high - low);
  const every = Math.ceil(points.length / STEP_POINTS);
  const dots = points
    .filter((point, place) => place % every === 0 || point.value === high || point.value === low)
    .map(({ step, value }) => svg('circle', { cx: x(step), cy: y(value), r: 1.8, fill: colours.ground('quiet') }));
  const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `from ${bytes(values[0] ?? null)} to ${bytes(values[values.length - 1] ?? null)}` }, ...dots);
  const [from, to] = ends;
  if (from && to) {
    drawing.append(svg('line', { x1: x(from[0]), y1: y(from[1]), x2: x(to[0]), y2: y(to[1]), stroke: colours.ground('ink'), 'stroke-width': 1.5 }));
  }
  return el('div', { class: 'steps' }, el('span', { class: 'quiet' }, bytes(high)), drawing, el('span', { class: 'quiet' }, bytes(low)));
}

/** @param {number[]} list */
function mean(list) {
  return list.reduce((sum, one) => sum + one, 0) / list.length;
}

/**
 * Both ends of the line with the report's slope, laid through the middle of its points.
 * @param {StepPoint[]} points
 * @param {Slope} slope
 * @returns {[step: number, value: number][]}
 */
function slopeLine(points, { bytes_per_step, first_step, last_step }) {
  const within = points.filter(({ step }) => step >= first_step && step <= last_step);
  if (within.length === 0) return [];
  const middle = mean(within.map(({ step }) => step));
  const level = mean(within.map(({ value }) => value));
  return [first_step, last_step].map((step) => [step, level + bytes_per_step * (step - middle)]);
}
