// Small multiples: a panel for each host on one scale of time and of memory, and one for those that
// have no panel of their own.

const PANEL_HEIGHT = 132;

/** @param {Run} run */
function panelsSection(run) {
  const { curves } = run;
  if (curves.hosts.length === 0) return null;
  const panels = curves.hosts.map((curve) => new Panel(run, curve));
  if (curves.others) panels.push(new Panel(run, curves.others));
  let isShared = true;
  // Found once for each stretch that is shown.
  let found = { from: NaN, to: NaN, top: 0 };
  const shared = () => {
    const { from, to } = run.view;
    if (found.from !== from || found.to !== to) {
      found = { from, to, top: panels.reduce((most, { chart }) => Math.max(most, chart.highestShown(from, to)), 0) };
    }
    return found.top;
  };
  for (const { chart } of panels) chart.shared = () => (isShared ? shared() : null);
  const drawn = curves.hosts.length;
  const others = curves.others ? ` ${counted(curves.others.count, 'other host')} ${curves.others.count === 1 ? 'is' : 'are'} in the last panel and in the table.` : '';
  const made = section('panels', `Each host: ${count(drawn + (curves.others?.count ?? 0))}`, {
    tools: [choice('scale', [['shared', 'the same for all'], ['own', 'each its own']], (value) => {
      isShared = value === 'shared';
      for (const { chart } of panels) chart.show({ ...chart.shown });
    })],
    csv: () => curveCsv('hosts', panels.flatMap(({ held }) => held)),
    about: `What was held, from the least (filled) to the most (line) within each ${duration(curves.stretch_ns / NS)}, and the limit that the host meets first (dashed, where it is not far above).${others}`,
  });
  made.append(el('div', { class: 'panels' }, ...panels.map(({ element }) => element)));
  return made;
}

/** One host, or those that have no panel together. */
class Panel {
  /**
   * @param {Run} run
   * @param {HostCurve | OtherHosts} curve
   */
  constructor({ doc, seconds, view }, curve) {
    this.view = view;
    const isHost = 'host' in curve;
    const name = isHost ? curve.host : counted(curve.count, 'other host');
    this.line = isHost ? doc.report.hosts.find(({ host }) => host === curve.host) : undefined;
    /** @type {Steps[]} */
    this.held = curve.held.map((one) => ({ ...steps(one, seconds, NaN), name: `${name}, ${one.name}` }));
    this.chart = new Chart(view, { label: `what ${name} held`, height: PANEL_HEIGHT, isNarrow: true });
    this.now = el('span', { class: 'now' });
    const { line } = this;
    const status = line && line.status !== 'closed' ? STATUS_WORDS[line.status] ?? visible(line.status) : '';
    const stands = isHost && doc.report.outliers.some(({ host }) => host === curve.host);
    this.element = el(
      'div',
      { class: 'panel' },
      el('h3', {}, named(name, 40), ' ', status && el('span', { class: GRAVE.has(line?.status ?? '') ? 'alert' : 'quiet' }, status), stands && el('span', { class: 'alert' }, ' stands out'), this.now),
      this.chart.element,
      el('p', { class: 'quiet' }, line ? this.words(line) : 'the highest, the median and the lowest of them'),
    );
    const update = () => this.read();
    view.watch({ zoomed: update, pointed: update, pinned: update });
    restyled(() => this.show());
    this.show();
    this.read();
  }

  /** @param {HostLine} line */
  words({ peak_bytes: peak, limit_bytes: limit, headroom_bytes: left, left_ns: full }) {
    const parts = [`peak ${bytes(peak)}`];
    if (limit !== null) parts.push(`limit ${bytes(limit)}, ${bytes(left)} left at its peak`);
    if (full !== null) parts.push(`full in ${duration(full / NS)}`);
    return parts.join(' · ');
  }

  show() {
    const [first, second, third] = this.held;
    const limit = this.line?.limit_bytes ?? null;
    const colour = colours.of('held');
    /** @type {Line[]} */
    const lines = [];
    if (first) lines.push({ series: first, colour, width: 1.2, isEdge: third === undefined });
    if (third && second) lines.push({ series: second, colour: colours.ground('ink'), width: 1.2 }, { series: third, colour: colours.ground('quiet'), width: 1 });
    if (limit !== null) lines.push({ series: constant('limit', limit, this.view), colour: colours.ground('alert'), width: 1.2, dash: [5, 3], isLimit: true });
    const layers = third === undefined && second ? [second] : [];
    this.chart.show({ layers, layerColours: [mixed(colour, colours.isDark ? '#14171c' : '#ffffff', 0.45)], lines });
  }

  read() {
    const at = this.view.cursor ?? this.view.pin;
    const [most] = this.held;
    this.now.textContent = at === null || !most ? '' : bytes(valueAt(most, at));
  }
}

/** @type {{ [status: string]: string }} */
const STATUS_WORDS = { silent: 'not heard from any more', oom_killed: 'OOM kill', missing: 'missing', failed: 'failed', open: 'open', closed: 'closed' };
const GRAVE = new Set(['silent', 'oom_killed', 'missing', 'failed']);

/**
 * The same amount all the time.
 * @param {string} name
 * @param {number} amount
 * @param {View} view
 * @returns {Steps}
 */
function constant(name, amount, view) {
  return { id: name, name, pid: null, upid: null, seconds: Float64Array.of(view.begin), values: Float64Array.of(amount), before: amount };
}
