// What each phase cost: a waterfall of what was held at its begin and its end, host and GPU side
// by side.

const MOST_PHASES = 200;

/** @typedef {{ begin: Maybe, end: Maybe, peak: Maybe, delta: Maybe }} Bar */

/** @param {Phase | Repeated} line @returns {line is Repeated} */
function isRepeated(line) {
  return !('depth' in line);
}

/**
 * Of many phases of one name: what they gained together, up to what was held at the last end.
 * @param {Phase | Repeated} line
 * @param {number | null} baseline
 * @returns {Bar}
 */
function hostBar(line, baseline) {
  if (!isRepeated(line)) {
    const { begin_bytes, end_bytes, delta_bytes, peak_bytes } = line.held;
    return { begin: begin_bytes, end: end_bytes, delta: delta_bytes, peak: peak_bytes };
  }
  const { since_baseline_bytes: since, tree_delta_bytes: delta } = line;
  const end = since === null || baseline === null ? null : baseline + since;
  return { begin: end === null || delta === null ? null : end - delta, end, delta, peak: line.held.peak_bytes };
}

/**
 * @param {Phase | Repeated} line
 * @returns {Bar | null}
 */
function gpuBar(line) {
  if (line.gpu === null) return null;
  if (!isRepeated(line)) {
    const { begin_bytes, end_bytes, delta_bytes, peak_bytes } = /** @type {Level} */ (line.gpu);
    return { begin: begin_bytes, end: end_bytes, delta: delta_bytes, peak: peak_bytes };
  }
  return { begin: null, end: null, delta: line.gpu_delta_bytes, peak: line.gpu.peak_bytes };
}

/** @param {Recorded} all */
function phasesSection(all) {
  const { phases } = all.doc.report;
  if (!phases || phases.lines.length === 0) return null;
  const baseline = phases.baseline_held_bytes;
  const bars = phases.lines.map((line) => ({ line, host: hostBar(line, baseline), gpu: gpuBar(line) }));
  const hasGpu = bars.some(({ gpu }) => gpu !== null);
  const top = (/** @type {(Bar | null)[]} */ list) => list.reduce((most, bar) => Math.max(most, bar?.begin ?? 0, bar?.end ?? 0, bar?.peak ?? 0), 1);
  const mostHost = top(bars.map(({ host }) => host));
  const mostGpu = top(bars.map(({ gpu }) => gpu));
  const titles = ['phase', 'began', '>took', `held, to ${bytes(mostHost)}`, '>change', '>at its end',
    ...(hasGpu ? [`on GPUs, to ${bytes(mostGpu)}`, '>change'] : [])];
  const rowOf = (/** @type {typeof bars[0]} */ { line, host, gpu }) => [
    phaseName(line),
    line.begin ? after(line.begin.offset_ns / NS) : UNKNOWN,
    tookWords(line),
    barCell(host, mostHost),
    change(host.delta) + (!isRepeated(line) && (line.tree_uncertain.begin || line.tree_uncertain.end) ? ' ±' : ''),
    bytes(host.end),
    ...(hasGpu ? [gpu ? barCell(gpu, mostGpu) : '', gpu ? change(gpu.delta) : ''] : []),
  ];
  const made = section('phases', 'Phases', {
    csv: () => ({
      name: 'phases',
      columns: ['name', 'pid', 'count', 'begin_s', 'end_s', 'held_begin_bytes', 'held_end_bytes', 'held_change_bytes', 'held_peak_bytes', 'change_gpu_bytes', 'peak_gpu_bytes'],
      rows: bars.map(({ line, host, gpu }) => [line.name, line.pid, isRepeated(line) ? line.count : 1, line.begin && line.begin.offset_ns / NS, line.end.offset_ns / NS,
        host.begin, host.end, host.delta, host.peak, gpu?.delta, gpu?.peak]),
    }),
    about: `What all recorded processes held, every page once${hasGpu ? ', and what was in use on all GPUs' : ''}, phase by phase in order of their start: pale up to what was held at its start, dark what it added, hatched what it gave back, with a mark at the highest within. Open a phase for its roles.`,
  });
  const [first, rest] = [bars.slice(0, MOST_PHASES), bars.slice(MOST_PHASES)];
  const drawn = table('phases in order of their start', titles, first.map(rowOf));
  drawn.classList.add('waterfall');
  made.append(el('div', { class: 'wide' }, drawn));
  if (rest.length) {
    const more = button(`show ${count(rest.length)} more`, () => {
      for (const bar of rest) {
        const cells = rowOf(bar).map((cell, at) => el('td', { class: titles[at]?.startsWith('>') ? 'figure' : null }, cell));
        drawn.tBodies[0]?.append(el('tr', {}, ...cells));
      }
      more.remove();
    });
    made.append(more);
  }
  return made;
}

/** @param {Phase | Repeated} line */
function tookWords(line) {
  if (isRepeated(line)) return line.timed_count ? duration(line.total_ns / NS) : UNKNOWN;
  return line.duration_ns === null ? UNKNOWN : duration(line.duration_ns / NS);
}

/**
 * The name of a phase, which opens to what each role gained.
 * @param {Phase | Repeated} line
 */
function phaseName(line) {
  const times = isRepeated(line) ? ` × ${count(line.count)}` : '';
  const whose = line.process_name === null ? '' : ` ${shorten(line.process_name, 28)} ${line.pid ?? ''}`;
  const name = [named(line.name, 44), times, el('span', { class: 'quiet' }, whose)];
  const indent = isRepeated(line) ? 0 : Math.min(line.depth, 8);
  const roles = isRepeated(line)
    ? line.roles.map(({ name, delta, peak_bytes }) => ({ name, delta: delta?.sum_bytes ?? null, peak: peak_bytes }))
    : line.roles.map(({ name, delta, peak_rss_bytes }) => ({ name, delta: delta.rss_bytes, peak: peak_rss_bytes }));
  if (roles.length === 0) return el('span', { 'style-padding-left': `${indent}rem` }, ...name);
  const rows = roles.map(({ name, delta, peak }) => [
    el('span', {}, el('span', { class: 'swatch', 'style-background': colours.of(name) }), named(name, 36)),
    change(delta),
    bytes(peak),
  ]);
  return el('details', { 'style-padding-left': `${indent}rem` }, el('summary', {}, ...name), table('by role', ['role', '>change', '>highest'], rows));
}

/**
 * A bar from what was held at the begin to what was held at the end, with a mark at the highest.
 * @param {Bar} bar
 * @param {number} most
 */
function barCell({ begin, end, delta, peak }, most) {
  const percent = (/** @type {number} */ amount) => `${Math.min(100, Math.max(0, (100 * amount) / most))}%`;
  const words = `${bytes(begin)} to ${bytes(end)}, ${change(delta)}, highest ${bytes(peak)}`;
  const box = el('div', { class: 'bar', role: 'img', 'aria-label': words, title: words });
  if (begin !== null && end !== null) {
    const low = Math.min(begin, end);
    box.append(el('span', { class: 'base', 'style-width': percent(low) }));
    const changed = { 'style-left': percent(low), 'style-width': percent(Math.abs(end - begin)) };
    if (begin !== end) box.append(el('span', { class: end > begin ? 'grew' : 'shrank', ...changed }));
  }
  if (peak !== null) box.append(el('span', { class: 'peak', 'style-left': percent(peak) }));
  return box;
}
