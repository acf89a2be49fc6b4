// Two recordings: their curves over each other, and what grew, by role.

/** @param {Recorded} all */
function compareSection(all) {
  const { diff, other } = all.doc;
  if (!diff || !other) return null;
  const before = recorded(other);
  const made = section('compare', 'What changed', {
    tools: [alignment(all, before)],
    csv: () => ({
      name: 'diff',
      columns: ['role', 'kind', 'peak_before_bytes', 'peak_after_bytes', 'mean_before_bytes', 'mean_after_bytes'],
      rows: [diff.whole, ...diff.roles].flatMap(({ name, kinds }) => Object.entries(kinds).map(([kind, { peak, mean }]) =>
        [name, kind, peak.before_bytes, peak.after_bytes, mean.before_bytes, mean.after_bytes])),
    }),
  });
  const place = el('div', { class: 'picture' });
  made.append(place, rolesTable(diff));
  alignAt(all, before, 0, 0, place);
  return made;

  /**
   * @param {Recorded} all
   * @param {Recorded} before
   */
  function alignment(all, before) {
    /** @type {[string, number, number][]} */
    const ways = [['the start', 0, 0], ['the peak', peakOf(before)[0], peakOf(all)[0]]];
    for (const band of all.doc.bands) {
      const same = before.doc.bands.find(({ name }) => name === band.name);
      if (!same || ways.some(([words]) => words === band.name) || ways.length > 40) continue;
      ways.push([band.name, same.begin_ns / NS, band.begin_ns / NS]);
    }
    return choice('aligned at', ways.map(([words], at) => [String(at), words]), (at) => {
      const [, one, two] = ways[Number(at)] ?? ['', 0, 0];
      alignAt(all, before, one, two, place);
    });
  }
}

/**
 * Draws both curves, in seconds since the instant that is theirs alike.
 * @param {Recorded} all
 * @param {Recorded} before
 * @param {number} zeroBefore
 * @param {number} zeroAfter
 * @param {HTMLElement} place
 */
function alignAt(all, before, zeroBefore, zeroAfter, place) {
  const moved = (/** @type {Recorded} */ one, /** @type {number} */ zero, /** @type {string} */ name) => {
    const series = one.lines.find(({ id }) => id === 'held') ?? one.lines[0];
    if (!series) return undefined;
    // Beyond its end a recording knows nothing.
    const seconds = Float64Array.from([...series.seconds, one.view.end].map((at) => at - zero));
    return { ...series, id: name, name, seconds, values: Float64Array.from([...series.values, NaN]) };
  };
  const curves = [
    { series: moved(before, zeroBefore, 'before'), place: 1 },
    { series: moved(all, zeroAfter, 'after'), place: 0 },
  ].flatMap(({ series, place }) => (series ? [{ series, place }] : []));
  const begin = Math.min(-zeroBefore, -zeroAfter);
  const end = Math.max(before.view.end - zeroBefore, all.view.end - zeroAfter);
  const view = new View(begin, end);
  const chart = new Chart(view, { label: 'memory held, before and after', height: 260 });
  const readout = new Readout(view, new Clock(null, end - begin), { resting: () => [peakOf(all)[0] - zeroAfter, 'at the later peak'] });
  const update = () => {
    /** @type {Line[]} */
    const lines = curves.map(({ series, place }) => ({ series, colour: colours.hue(place), width: 1.8, ...(place ? { dash: [6, 3] } : {}) }));
    chart.show({ layers: [], layerColours: [], lines });
    readout.show([], lines);
  };
  place.replaceChildren(chart.element, readout.element);
  restyled(update);
  update();
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
    el('p', { class: 'quiet' }, `Before: ${words(before)}. After: ${words(now)}.`),
    table('peaks and means of the sum of RSS by role', ['role', '>processes', '>peak before', '>peak after', '>change', '', '>mean', '>GPU peak'], rows));
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
