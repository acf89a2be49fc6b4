// The last panel: losses, what the recorder cost, the host, the command, and the report as text.

/** @param {Recorded} all */
function aboutSection(all) {
  const { report, target } = all.doc;
  const made = section('about', 'About this recording');
  const losses = [...report.losses, ...report.notes];
  made.append(
    el('div', { class: 'columns' }, facts('the recording', recordingFacts(report, target)), facts('the recorder', recorderFacts(report))),
  );
  if (losses.length) {
    made.append(el('div', { class: 'wide' }, table('lost, not visible, or good to know', ['', 'what', '>times', 'when first', 'detail'], losses.map((loss) => [
      visible(loss.severity),
      named(loss.subject, 60),
      loss.count === null ? '' : count(loss.count),
      loss.first ? after(loss.first.offset_ns / NS) : '',
      named(loss.detail, 400),
    ]))));
  } else made.append(el('p', { class: 'quiet' }, 'Nothing was lost.'));
  made.append(fullText() ?? '');
  return made;
}

/** What stands in the page without scripts, folded. */
function fullText() {
  const plain = document.getElementById('plain');
  return plain && el('details', { class: 'full-text' }, el('summary', {}, 'Full text'), plain);
}

/**
 * @param {string} caption
 * @param {[string, Child][]} lines
 */
function facts(caption, lines) {
  const known = lines.filter(([, value]) => value !== null && value !== '');
  return el('div', {}, el('h3', {}, caption), el('dl', {}, ...known.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])));
}

/**
 * @param {Report} report
 * @param {string} target
 * @returns {[string, Child][]}
 */
function recordingFacts({ recording, process_count }, target) {
  const memory = recording.mem_total_bytes === null ? '' : `, ${bytes(recording.mem_total_bytes)}`;
  return [
    ['what', named(target, 400)],
    ['exit code', recording.command_exit_code],
    ['where', recording.path === null ? null : named(recording.path, 200)],
    ['host', named(`${recording.hostname}, Linux ${recording.kernel} ${recording.arch}, ${counted(recording.cpu_count, 'CPU')}${memory}`, 200)],
    ['start', recording.start.time === null ? null : visible(recording.start.time)],
    ['length', duration(recording.duration_ns / NS)],
    ['processes', count(process_count)],
    ['state', recording.is_live ? 'still recorded' : visible(recording.state)],
    ['observed by', named(`${recording.backend}: ${recording.backend_reason}`, 200)],
  ];
}

/**
 * @param {Report} report
 * @returns {[string, Child][]}
 */
function recorderFacts({ cost, recording }) {
  const version = ['memtrace', visible(recording.memtrace_version)];
  if (!cost) return [/** @type {[string, Child]} */ (version), ['cost', 'was not measured']];
  return [
    /** @type {[string, Child]} */ (version),
    ['CPU', `${duration(cost.cpu_ns / NS, 0.001)}${cost.cpu_share === null ? '' : `, ${(cost.cpu_share * 100).toFixed(2)}% of one CPU`}`],
    ['BPF programs', cost.bpf_run_ns === null ? null : duration(cost.bpf_run_ns / NS, 0.001)],
    ['peak memory', cost.peak_rss_bytes === null ? null : bytes(cost.peak_rss_bytes)],
    ['written', `${bytes(cost.written_bytes)}, ${counted(cost.row_count, 'row')}`],
    ['events lost', count(cost.lost_event_count)],
    ['interval', duration(cost.interval_ns / NS, 0.001)],
  ];
}
