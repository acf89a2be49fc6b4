// The instant that is pinned: what everyone held then, and the nearest ledger that the report has.

/** @param {Recorded} all */
function pinnedSection(all) {
  const { view, doc, clock, stacks } = all;
  const title = el('h2', { id: 'pinned-title' });
  const body = el('div', { class: 'columns' });
  const ledger = el('div', {});
  const made = el(
    'section',
    { id: 'pinned', 'aria-labelledby': 'pinned-title', 'aria-live': 'polite', hidden: true },
    el('div', { class: 'head' }, title, el('div', { class: 'tools' },
      button('CSV', () => saveCsv({ name: 'instant', columns: ['by', 'name', 'pid', 'bytes'], rows: rows() })),
      button('unpin (Esc)', () => view.pinAt(null)))),
    body,
    ledger,
  );
  function* rows() {
    const at = view.pin ?? 0;
    for (const { by, series } of stacks) {
      for (const one of series) yield [by, one.name, one.pid, valueAt(one, at)];
    }
  }
  const update = () => {
    const at = view.pin;
    made.hidden = at === null;
    if (at === null) return;
    title.textContent = `Held at ${clock.both(at, 0.001)}`;
    body.replaceChildren(...stacks.map((stack) => compositionTable(doc, stack, at)));
    ledger.replaceChildren(...nearestLedger(doc.report, at));
  };
  view.watch({ pinned: update });
  restyled(update);
  return made;
}

/**
 * The largest of a stack at an instant.
 * @param {PageDocument} doc
 * @param {Stack} stack
 * @param {number} at
 */
function compositionTable(doc, { by, label, series }, at) {
  const colourOf = seriesColours(doc, by, series);
  const known = series.map((one) => ({ one, value: valueAt(one, at) }));
  const held = known.filter(({ value }) => value !== 0);
  held.sort((one, other) => (other.value ?? -1) - (one.value ?? -1));
  const rows = held.slice(0, 12).map(({ one, value }) => [
    el('span', {}, el('span', { class: 'swatch', 'style-background': colourOf.get(one) }), named(one.name, 40), typeof one.pid === 'number' ? ` ${one.pid}` : ''),
    bytes(value),
  ]);
  const rest = held.slice(12).reduce((sum, { value }) => sum + (value ?? 0), 0);
  if (held.length > 12) rows.push([`${count(held.length - 12)} more`, bytes(rest)]);
  const all = held.reduce((sum, { value }) => sum + (value ?? 0), 0);
  rows.push([el('strong', {}, 'together'), bytes(all)]);
  return table(visible(label), ['', '>bytes'], rows);
}

/**
 * @param {Report} report
 * @param {number} at
 * @returns {Node[]}
 */
function nearestLedger(report, at) {
  const told = toldCompositions(report);
  told.sort((one, other) => Math.abs(one.seconds - at) - Math.abs(other.seconds - at));
  const nearest = told[0];
  if (!nearest) return [el('p', { class: 'quiet' }, 'The report has no ledger.')];
  const distance = nearest.seconds - at;
  const apart = Math.abs(distance) < 1e-9 ? 'this instant' : `${duration(Math.abs(distance))} ${distance > 0 ? 'later' : 'earlier'}`;
  const [picture] = ledgerPictures(report, nearest.composition);
  if (!picture) return [];
  const { whole, remarks } = picture.make();
  return [
    el('p', {}, `The nearest ledger in the report is of ${nearest.words}, ${apart}:`),
    new Icicle(whole, 'the nearest ledger').element,
    ...remarks.map((remark) => el('p', { class: 'quiet' }, remark)),
  ];
}
