// Resident memory by the stack that touched it first (record --stacks): an icicle, callers above what
// they called.

/**
 * @param {Flame} flame
 * @param {string} colour Of the process.
 * @returns {Part}
 */
function flamePart(flame, colour) {
  const grey = flame.kind === 'native' ? 0.55 : 0.1;
  return {
    name: flame.name,
    bytes: flame.bytes,
    colour: flame.kind === null ? colour : mixed(colour, '#888888', grey),
    about: flame.kind === 'native' ? 'machine code' : undefined,
    parts: flame.parts.map((part) => flamePart(part, colour)),
  };
}

/** @param {Recorded} all */
function stacksSection(all) {
  const ofEnd = all.doc.flames ?? [];
  const ofPeak = all.doc.flames_at_peak ?? [];
  let flames = ofEnd.length ? ofEnd : ofPeak;
  if (!flames.length) return null;
  const roles = rolesByProcess(all.doc.report);
  const made = () => flames.map((flame) => flamePart(flame, colours.of(roles.get(flame.upid ?? -1) ?? flame.name)));
  /** @type {Icicle} */
  let icicle;
  let place = '';
  // Deep stacks that hold little are in a part that scrolls.
  const body = el('div', { class: 'rows' });
  const found = el('span', { class: 'quiet', role: 'status' });
  /** @type {HTMLInputElement} */
  const search = el('input', { type: 'search', placeholder: 'function, file', 'aria-label': 'search functions and files' });
  const mark = () => {
    const sum = icicle.find(search.value);
    found.textContent = search.value.trim() ? `${bytes(sum)}, ${share(sum, icicle.whole.bytes)}` : '';
  };
  const update = () => {
    const parts = made();
    const sum = flames.reduce((all, flame) => all + flame.bytes, 0);
    const whole = parts[Number(place)];
    icicle = new Icicle(
      place && whole ? whole : { name: flames === ofPeak ? 'held at the peak, by samples' : 'resident memory, by samples', bytes: sum, colour: colours.ground('panel'), parts },
      'resident memory by stack',
      1.35,
    );
    body.replaceChildren(icicle.element);
    mark();
  };
  search.addEventListener('input', mark);
  // Of each instant there are other processes.
  const chosen = el('span', {});
  const choose = () => {
    place = '';
    /** @type {[string, string][]} */
    const processes = flames.map(({ name, bytes: held }, at) => [String(at), `${name} (${bytes(held)})`]);
    const ofOne = () => choice('of', [['', 'all processes'], ...processes], (process) => ((place = process), update()));
    chosen.replaceChildren(...(flames.length > 1 ? [ofOne()] : []));
    update();
  };
  /** @type {[string, string][]} */
  const instants = [
    ...(ofEnd.length ? [/** @type {[string, string]} */ (['end', 'at the end'])] : []),
    ...(ofPeak.length ? [/** @type {[string, string]} */ (['peak', 'at the peak'])] : []),
  ];
  const tools = [
    choice('when', instants, (when) => ((flames = when === 'peak' ? ofPeak : ofEnd), choose())),
    chosen,
    search,
    found,
  ];
  const part = section('stacks', 'Who allocated it', {
    tools,
    about: 'Memory by the stack that touched it first, callers above what they called; from samples: what is resident at the end, or was held at the peak. Pale parts are machine code.',
    csv: () => ({ name: 'stacks', columns: ['level', 'path', 'bytes', 'remark'], rows: partRows(icicle.whole) }),
  });
  part.append(body);
  restyled(update);
  choose();
  return part;
}
