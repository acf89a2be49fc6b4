// Reads the document, and builds the page from it: the answer first, then picture by picture.

const FORMATS = ['memtrace-page', 'memtrace-run-page'];

/**
 * The document that the file carries: base64 of raw deflate of JSON.
 * @returns {Promise<PageDocument | RunDocument>}
 */
async function readDocument() {
  const text = (document.getElementById('data')?.textContent ?? '').trim();
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let place = 0; place < packed.length; place += 1) packed[place] = letters.charCodeAt(place);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const read = await new Response(stream).json();
  if (!FORMATS.includes(read.format) || read.version !== 1) {
    throw new Error(`this script does not know version ${read.version} of ${read.format}`);
  }
  return read;
}

/**
 * What is wrong with a recording.
 * @param {PageDocument} doc
 */
function warningsOf({ report: { recording } }) {
  /** @type {string[]} */
  const warnings = [];
  if (recording.is_live) warnings.push('The recorder was still writing: this is what was there by then.');
  else if (recording.state === 'recording') warnings.push('The recording was never closed: its recorder was killed, and its last second may be missing.');
  for (const problem of recording.problems) warnings.push(visible(problem));
  return warnings;
}

/**
 * @param {{ title: string, answer: AnswerLine[] }} doc
 * @param {string[]} warnings
 */
function answer(doc, warnings) {
  return el(
    'header',
    {},
    el('h1', {}, named(doc.title, 140)),
    ...doc.answer.map(({ tone, text }) => el('p', { class: tone }, ...withCommand(text))),
    ...warnings.map((warning) => el('p', { class: 'alert' }, warning)),
  );
}

/**
 * A line of the answer, its command as code that breaks between words only. The last mark ends it: in
 * it can be names with marks of their own.
 * @param {string} text
 * @returns {Child[]}
 */
function withCommand(text) {
  const [from, to] = [text.indexOf('`memtrace '), text.lastIndexOf('`')];
  if (from < 0 || to <= from) return [text];
  const words = text.slice(from + 1, to).split(' ').flatMap((word) => [' ', el('span', { class: 'word' }, word)]);
  return [text.slice(0, from), el('code', {}, ...words.slice(1)), text.slice(to + 1)];
}

/**
 * Links to the parts of the page.
 * @param {HTMLElement[]} parts
 */
function contents(parts) {
  return el('nav', { 'aria-label': 'parts of the page' }, ...parts.flatMap((part) => {
    const heading = part.querySelector('h2');
    return heading && part.id !== 'pinned' ? [el('a', { href: `#${part.id}` }, heading.textContent)] : [];
  }));
}

/** @param {PageDocument} doc */
async function build(doc) {
  const main = /** @type {HTMLElement} */ (document.getElementById('page'));
  for (const { name } of doc.report.roles) colours.place(name);
  const all = recorded(doc);
  const head = answer(doc, warningsOf(doc));
  main.replaceChildren(head, compareSection(all) ?? '', memorySection(all), pinnedSection(all));
  // The answer and the main picture are on the screen before the rest is made.
  const rest = [gpuSection, lanesSection, ledgerSection, stacksSection, phasesSection, stepsSection, processesSection, aboutSection];
  await appendParts(main, rest, all);
  head.append(contents([...main.querySelectorAll('section')]));
  unpinByEscape(all.view);
}

/**
 * Makes parts one after the other, so that the page answers in between.
 * @template Given
 * @param {HTMLElement} main
 * @param {((given: Given) => HTMLElement | null)[]} parts
 * @param {Given} given
 */
async function appendParts(main, parts, given) {
  for (const make of parts) {
    await new Promise((done) => setTimeout(done));
    const made = make(given);
    if (made) main.append(made);
  }
}

/** @param {View} view */
function unpinByEscape(view) {
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && view.pin !== null && !event.defaultPrevented) view.pinAt(null);
  });
}

function restyle() {
  colours.grounds.clear();
  for (const update of restyling) update();
}

darkScheme.addEventListener('change', restyle);
addEventListener('beforeprint', () => {
  isPrinted = true;
  document.documentElement.classList.add('printed');
  restyle();
});
addEventListener('afterprint', () => {
  isPrinted = false;
  document.documentElement.classList.remove('printed');
  restyle();
});

/** @param {PageDocument | RunDocument} doc */
async function draw(doc) {
  if (doc.format === 'memtrace-run-page') await buildRun(/** @type {RunDocument} */ (doc));
  else await build(/** @type {PageDocument} */ (doc));
  document.documentElement.dataset['ready'] = 'true';
}

readDocument().then(draw).catch((/** @type {unknown} */ error) => {
  const why = `The pictures can't be drawn: ${error instanceof Error ? error.message : String(error)}. The text below has what is known.`;
  document.getElementById('page')?.append(el('p', { class: 'alert', role: 'alert' }, why));
  document.documentElement.dataset['ready'] = 'failed';
});
