// The page of a run of many hosts: the answer, what all hosts held, a panel for each host, then roles,
// ranks, ends and hosts in tables.

/**
 * What the pictures of a run are made of.
 * @typedef {object} Run
 * @property {RunDocument} doc
 * @property {RunCurves} curves
 * @property {Float64Array} seconds
 * @property {View} view
 * @property {Clock} clock
 */

/** @type {RunCurves} */
const NO_RUN_CURVES = { start_unix_ns: null, end_ns: 0, stretch_ns: 0, time_ns: [], all: [], hosts: [], others: null };

/** @param {RunDocument} doc */
async function buildRun(doc) {
  const main = /** @type {HTMLElement} */ (document.getElementById('page'));
  const curves = doc.curves ?? NO_RUN_CURVES;
  const end = curves.end_ns / NS || 0;
  /** @type {Run} */
  const run = { doc, curves, seconds: instants(curves.time_ns), view: new View(0, end), clock: new Clock(curves.start_unix_ns, end) };
  const head = answer(doc, []);
  main.replaceChildren(head, sumSection(run));
  const rest = [panelsSection, outliersSection, rolesSection, ranksSection, endsSection, hostsSection, runPhasesSection, aboutRunSection];
  await appendParts(main, rest, run);
  head.append(contents([...main.querySelectorAll('section')]));
  unpinByEscape(run.view);
}

/**
 * What all hosts held together, with what it was no less than and no more than.
 * @param {Run} run
 */
function sumSection({ doc, curves, seconds, view, clock }) {
  if (curves.all.length === 0) {
    const nothing = section('memory', 'All hosts together');
    nothing.append(el('p', { class: 'alert' }, 'No recording has a row of memory, so there is nothing to draw.'));
    return nothing;
  }
  const all = curves.all.map((one) => steps(one, seconds, NaN));
  const [held, least, most] = all;
  const overlay = new Overlay([], doc.flags);
  const chart = new Chart(view, { label: 'what all hosts held', height: 260 + overlay.height, top: overlay.height, overlay: (drawn) => overlay.draw(drawn) });
  const { peak } = doc.report;
  const at = peak && peak.at.wall_ns !== null && curves.start_unix_ns !== null ? (peak.at.wall_ns - curves.start_unix_ns) / NS : view.end;
  const readout = new Readout(view, clock, {
    resting: () => [at, 'at the peak'],
    more: (instant) => overlay.flagsNear(instant, (view.to - view.from) / 150).slice(0, 4).map(({ seconds: when, text }) => `${after(when)}: ${shorten(text, 200)}`),
  });
  restyled(() => update());
  const update = () => {
    const colour = colours.of('held');
    const layers = held ? [held] : [];
    /** @type {Line[]} */
    const lines = [most, least].flatMap((series, place) => (series ? [{ series, colour: colours.ground('ink'), width: 1, dash: place ? [1, 3] : [5, 3], hasHalo: true, isEdge: true }] : []));
    chart.show({ layers, layerColours: [colour], lines });
    readout.show(layers.map((series) => ({ series, colour })), lines);
  };
  update();
  const made = section('memory', 'All hosts together', {
    csv: () => curveCsv('all-hosts', all),
    about: `The most within each ${duration(curves.stretch_ns / NS)} of the wall clock: added up at each instant, never from the peaks of hosts. Drag to zoom, double-click for all, click to pin.`,
  });
  made.append(el('div', { class: 'picture' }, chart.element, readout.element));
  return made;
}

/** @param {Run} run */
function aboutRunSection({ doc }) {
  const { report } = doc;
  const made = section('about', 'About this run');
  made.append(el('div', { class: 'columns' }, facts('the run', [
    ['run', named(report.run, 100)],
    ['hosts', `${count(report.host_count)}${report.expected_host_count === null ? '' : ` of ${count(report.expected_host_count)} expected`}`],
    ['recordings', count(report.recording_count)],
    ['start', report.start?.time ?? null],
    ['end', report.end?.time ?? null],
    ['reported by', `memtrace ${visible(report.memtrace_version)}`],
  ])));
  if (report.problems.length) {
    made.append(el('div', { class: 'wide' }, table('not used, or only in part', ['host', 'recording', 'what'], report.problems.map(({ host, rec, text }) => [
      named(host, 60),
      rec === null ? '' : named(rec, 40),
      named(text, 400),
    ]))));
  }
  made.append(fullText() ?? '');
  return made;
}
