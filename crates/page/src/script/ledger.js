// What was in use, taken apart so that every page counts once. The report has it for the peak, for
// kills by the OOM killer and for the instant of --at; no other is made up here.

/**
 * @typedef {object} Told
 * @property {string} words Of which instant.
 * @property {number} seconds
 * @property {Composition} composition
 */

/**
 * The instants whose composition the report tells.
 * @param {Report} report
 * @returns {Told[]}
 */
function toldCompositions(report) {
  /** @type {Told[]} */
  const told = [];
  const add = (/** @type {string} */ words, /** @type {Composition | null} */ composition) => {
    if (composition) told.push({ words, seconds: composition.at.offset_ns / NS, composition });
  };
  add('the peak', report.peak);
  add('the instant asked for', report.at);
  for (const kill of report.oom_kills) add(`the OOM kill of ${shorten(kill.victim_name ?? kill.victim_pid, 40)}`, kill.held);
  return told;
}

/**
 * Of a process that had several roles, that which held most.
 * @param {Report} report
 * @returns {Map<number, string>}
 */
function rolesByProcess(report) {
  const roles = new Map();
  for (const { name, upids } of [...report.roles].reverse()) for (const upid of upids) roles.set(upid, name);
  return roles;
}

/**
 * @param {Report} report
 * @param {Attribution} ledger
 * @returns {{ whole: Part, remarks: string[] }}
 */
function ledgerParts(report, ledger) {
  const roles = rolesByProcess(report);
  const processes = ledger.anonymous.map((line) => ({
    name: `${visible(line.name)} ${line.pid ?? ''}`.trim(),
    bytes: line.bytes,
    colour: colours.of(roles.get(line.upid ?? -1) ?? visible(line.name)),
    parts: [],
  }));
  const objects = ledger.shared.map((object) => ({
    name: object.name ?? `${(object.kind ?? 'object').replace(/_/g, ' ')} ${object.device} ${object.inode}`,
    bytes: object.resident_bytes ?? object.allocated_bytes ?? 0,
    colour: colours.kind('shmem'),
    about: `${(object.kind ?? 'shared object').replace(/_/g, ' ')}, mapped by ${counted(object.mapper_count, 'recorded process', 'recorded processes')}`,
    parts: [],
  }));
  const files = ledger.files.map((file) => ({
    name: file.path,
    bytes: file.cached_bytes ?? 0,
    colour: colours.kind('file'),
    about: `page cache, used by ${counted(file.user_count, 'recorded process', 'recorded processes')}`,
    parts: [],
  }));
  const kernel = ledger.kernel.map((line) => ({
    name: line.part === 'all' ? 'kernel memory' : line.part.replace(/_/g, ' '),
    bytes: line.bytes,
    colour: colours.kind('kernel'),
    parts: [],
  }));
  const grey = colours.rest;
  const others = ledger.other_process_count === null ? 'other processes' : counted(ledger.other_process_count, 'process', 'processes') + ' not recorded';
  /** @type {[string, Maybe, string, Part[]][]} */
  const lines = [
    ['anonymous memory', ledger.anonymous_bytes, colours.kind('anon'), processes],
    [others, ledger.other_processes_bytes, grey, []],
    ['memtrace itself', ledger.recorder_bytes, grey, []],
    ['shared objects', ledger.shared_bytes, colours.kind('shmem'), objects],
    ['other shared memory', ledger.other_shared_bytes, mixed(colours.kind('shmem'), '#888888', 0.5), []],
    ['files in use', ledger.files_bytes, colours.kind('file'), files],
    ['page cache of other files', ledger.other_files_bytes, mixed(colours.kind('file'), '#888888', 0.5), []],
    ['kernel', ledger.kernel_bytes, colours.kind('kernel'), kernel],
    ['not attributed', ledger.residual_bytes, grey, []],
  ];
  /** @type {string[]} */
  const remarks = [];
  /** @type {Part[]} */
  const parts = [];
  for (const [name, amount, colour, inner] of lines) {
    if (amount !== null && amount < 0) remarks.push(`The parts add up to ${bytes(-amount)} more than what is in use: ${name} is ${bytes(amount)}.`);
    if (amount !== null && amount > 0) parts.push({ name, bytes: amount, colour, parts: withRest(inner, amount, colour) });
  }
  for (const [words, list] of /** @type {const} */ ([['shared objects', ledger.shared_elsewhere], ['files', ledger.files_elsewhere]])) {
    if (list.length) remarks.push(`Part of ${counted(list.length, words.slice(0, -1))} used here is charged to other groups or swapped out, and is not shown.`);
  }
  if (ledger.kernel_outside_bytes !== null) remarks.push(`Kernel memory of the groups below, ${bytes(ledger.kernel_outside_bytes)}, is not shown: cgroup v1 does not count it here.`);
  const sum = parts.reduce((all, one) => all + one.bytes, 0);
  const name = ledger.scope === 'node' ? 'in use on the node' : `in use in ${visible(ledger.cgroup)}`;
  return { whole: { name, bytes: ledger.current_bytes ?? sum, colour: colours.ground('panel'), parts }, remarks };
}

/**
 * Parts with one more for what they do not tell of the sum.
 * @param {Part[]} parts
 * @param {number} sum
 * @param {string} colour
 */
function withRest(parts, sum, colour) {
  const known = parts.filter((part) => part.bytes > 0);
  const rest = sum - known.reduce((all, one) => all + one.bytes, 0);
  if (known.length && rest > 0) known.push({ name: 'not listed', bytes: rest, colour: mixed(colour, '#888888', 0.5), parts: [] });
  return known;
}

/**
 * Where the recording does not know what is shared: the sum of RSS by role, process and kind.
 * @param {Report} report
 * @param {Composition} composition
 * @returns {{ whole: Part, remarks: string[] }}
 */
function rssParts(report, composition) {
  const roles = rolesByProcess(report);
  /** @type {Map<string, Part>} */
  const byRole = new Map();
  for (const holder of composition.holders) {
    const role = roles.get(holder.upid ?? -1) ?? visible(holder.name);
    const colour = colours.of(role);
    const part = byRole.get(role) ?? { name: role, bytes: 0, colour, parts: [] };
    byRole.set(role, part);
    /** @type {[string, Maybe][]} */
    const kinds = [['anon', holder.anon_bytes], ['shmem', holder.shmem_bytes], ['file', holder.file_bytes]];
    const held = holder.rss_bytes ?? 0;
    part.bytes += held;
    part.parts.push({
      name: `${visible(holder.name)} ${holder.pid ?? ''}`.trim(),
      bytes: held,
      colour: mixed(colour, '#888888', 0.15),
      parts: kinds.flatMap(([name, amount]) => (amount ? [{ name, bytes: amount, colour: colours.kind(name), parts: [] }] : [])),
    });
  }
  const parts = withRest([...byRole.values()], composition.sum_of_rss_bytes ?? 0, '#888888');
  const sum = composition.sum_of_rss_bytes ?? parts.reduce((all, one) => all + one.bytes, 0);
  const remarks = ['It is unknown what is shared: this is the sum of RSS, which counts a page in each process that maps it.'];
  return { whole: { name: 'sum of RSS', bytes: sum, colour: colours.ground('panel'), parts }, remarks };
}

/**
 * The pictures that an instant has: its ledgers, else its sum of RSS.
 * @param {Report} report
 * @param {Composition} composition
 * @returns {{ name: string, make: () => { whole: Part, remarks: string[] } }[]}
 */
function ledgerPictures(report, composition) {
  const ledgers = composition.ledgers.map((ledger) => ({
    name: ledger.scope === 'node' ? 'the node' : visible(ledger.cgroup),
    make: () => ledgerParts(report, ledger),
  }));
  return ledgers.length ? ledgers : [{ name: 'processes', make: () => rssParts(report, composition) }];
}

/** @param {Recorded} all */
function ledgerSection(all) {
  const { report } = all.doc;
  const told = toldCompositions(report);
  const first = told[0];
  if (!first) return null;
  let composition = first.composition;
  let place = 0;
  const body = el('div', {});
  const scope = el('span', {});
  /** @type {Part} */
  let whole;
  const update = () => {
    const pictures = ledgerPictures(report, composition);
    const picture = /** @type {typeof pictures[0]} */ (pictures[place] ?? pictures[0]);
    const made = picture.make();
    whole = made.whole;
    body.replaceChildren(
      new Icicle(made.whole, 'the ledger').element,
      ...made.remarks.map((remark) => el('p', { class: 'quiet' }, remark)),
    );
  };
  const scopes = () => {
    const pictures = ledgerPictures(report, composition);
    scope.replaceChildren(
      pictures.length > 1
        ? choice('of', pictures.map(({ name }, at) => [String(at), name]), (at) => ((place = Number(at)), update()))
        : '',
    );
    place = 0;
    update();
  };
  const instantChoice = choice('at', told.map(({ words, seconds }, at) => [String(at), `${words} (${after(seconds)})`]), (at) => {
    composition = told[Number(at)]?.composition ?? first.composition;
    scopes();
  });
  const made = section('ledger', 'What was in use', {
    tools: [instantChoice, scope],
    csv: () => ({ name: 'ledger', columns: ['level', 'path', 'bytes', 'remark'], rows: partRows(whole) }),
  });
  made.append(body);
  restyled(update);
  scopes();
  return made;
}
