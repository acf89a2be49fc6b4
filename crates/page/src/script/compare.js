// Two recordings: their curves over each other, and what grew, by role.

/** @param {Recorded} all */
function compareSection(all) {
  const { diff, other } = all.doc;
  if (!diff || !other) return null;
  const before = recorded(other);
  const ways = alignments(all, before);
  const picture = new Compared(all, before);
  const made = section('compare', 'What changed', {
    tools: [choice('aligned at', ways.map(([words], at) => [String(at), words]), (at) => {
      const [, one, two] = ways[Number(at)] ?? ['', 0, 0];
      picture.align(one, two);
    })],
    csv: () => ({
      name: 'diff',
      columns: ['role', 'kind', 'peak_before_bytes', 'peak_after_bytes', 'mean_before_bytes', 'mean_after_bytes'],
      rows: [diff.whole, ...diff.roles].flatMap(({ name, kinds }) => Object.entries(kinds).map(([kind, { peak, mean }]) =>
        [name, kind, peak.before_bytes, peak.after_bytes, mean.before_bytes, mean.after_bytes])),
    }),
  });
  made.append(picture.element, rolesTable(diff));
  return made;
}

/**
 * Instants that both recordings know: what they are called, and when they are in the first and in
 * the second.
 * @param {Recorded} all
 * @param {Recorded} before
 */
function alignments(all, before) {
  /** @type {[string, number, number][]} */
  const ways = [['the start', 0, 0], ['the peak', peakOf(before)[0], peakOf(all)[0]]];
  for (const band of all.doc.bands) {
    const same = before.doc.bands.find(({ name }) => name === band.name);
    if (!same || ways.some(([words]) => words === band.name) || ways.length > 40) continue;
    ways.push([band.name, same.begin_ns / NS, band.begin_ns / NS]);
  }
  return ways;
}

/** Both curves over each other, in seconds since an instant that is theirs alike. */
class Compared {
  /**
   * @param {Recorded} all
   * @param {Recorded} before
   */
  constructor(all, before) {
    this.all = all;
    this.before = before;
    this.zeroAfter = 0;
    /** @type {{ series: Steps, place: number }[]} */
    this.curves = [];
    this.view = new View(0, 1);
    this.chart = new Chart(this.view, { label: 'memory held, before and after', height: 260 });
    this.readout = new Readout(this.view, new Clock(null, 0), { resting: () => [peakOf(all)[0] - this.zeroAfter, 'at the later peak'] });
    this.element = el('div', { class: 'picture' }, this.chart.element, this.readout.element);
    restyled(() => this.show());
    this.align(0, 0);
  }

  /**
   * @param {number} zeroBefore
   * @param {number} zeroAfter
   */
  align(zeroBefore, zeroAfter) {
    const { all, before } = this;
    this.zeroAfter = zeroAfter;
    this.curves = [
      { series: moved(before, zeroBefore, 'before'), place: 1 },
      { series: moved(all, zeroAfter, 'after'), place: 0 },
    ].flatMap(({ series, place }) => (series ? [{ series, place }] : []));
    this.view.pinAt(null);
    this.view.cover(
      Math.min(before.view.begin - zeroBefore, all.view.begin - zeroAfter),
      Math.max(before.view.end - zeroBefore, all.view.end - zeroAfter),
    );
    this.show();
  }

  show() {
    /** @type {Line[]} */
    const lines = this.curves.map(({ series, place }) => ({ series, colour: colours.ground(place ? 'quiet' : 'ink'), width: 1.8, ...(place ? { dash: [6, 3] } : {}) }));
    this.chart.show({ layers: [], layerColours: [], lines });
    this.readout.show([], lines);
  }
}

/**
 * What was held in a recording, on another scale of time. Before its begin and beyond its end a
 * recording knows nothing.
 * @param {Recorded} recorded
 * @param {number} zero
 * @param {string} name
 * @returns {Steps | undefined}
 */
function moved({ lines, view }, zero, name) {
  const series = lines.find(({ id }) => id === 'held') ?? lines[0];
  if (!series) return undefined;
  const seconds = Float64Array.from([view.begin, ...series.seconds, view.end].map((at) => at - zero));
  const values = Float64Array.from([series.before, ...series.values, NaN]);
  return { ...series, id: name, name, seconds, values, before: NaN };
}

/** @param {Diff} diff */
function rolesTable({ whole, roles, before, after: now }) {
  const all = [whole, ...roles];
  const most = all.reduce((top, { kinds }) => Math.max(top, Math.abs(kinds['rss']?.peak.change_bytes ?? 0)), 1);
  const rows = all.map((one) => {
    const { name, kinds, gpu_peak } = one;
    const peak = kinds['rss']?.peak;
    const mean = kinds['rss']?.mean;
    return [
      one === whole ? el('strong', {}, 'all processes') : named(name, 40),
      `${one.process_count_before ?? '-'} → ${one.process_count_after ?? '-'}`,
      bytes(peak?.before_bytes),
      bytes(peak?.after_bytes),
      change(peak?.change_bytes),
      changeBar(peak?.change_bytes ?? 0, most),
      change(mean?.change_bytes),
      gpu_peak.change_bytes === null ? '' : change(gpu_peak.change_bytes),
    ];
  });
  const words = (/** @type {Diff['before']} */ one) => `${shorten(one.path ?? one.hostname, 60)}, ${duration(one.duration_ns / NS)}, ${counted(one.process_count, 'process', 'processes')}`;
  return el('div', { class: 'wide' },
    el('p', { class: 'quiet' }, `Before: ${words(before)}. After: ${words(now)}. On the host these are sums of RSS, in which a shared page counts in each process.`),
    table('peaks and means of the sum of RSS by role', ['role', '>processes', '>RSS peak before', '>RSS peak after', '>change', '', '>RSS mean', '>GPU peak'], rows));
}

/**
 * To the right what grew, to the left what shrank.
 * @param {number} amount
 * @param {number} most
 */
function changeBar(amount, most) {
  const width = (50 * Math.abs(amount)) / most;
  return el('div', { class: 'bar centred', 'aria-hidden': 'true' },
    el('span', { class: amount > 0 ? 'grew' : 'shrank', 'style-left': `${amount > 0 ? 50 : 50 - width}%`, 'style-width': `${width}%` }));
}
