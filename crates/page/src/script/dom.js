// Elements of the page. Text becomes text nodes and attributes only, with what would not show written
// out: no markup is ever parsed.

/**
 * @typedef {string | number | Node | null | undefined | false} Child
 * @typedef {{ [name: string]: string | number | boolean | null | undefined | ((event: any) => void) }} Given
 */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * An element: `on…` are listeners, `style-…` properties of its style, all else attributes.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Given} [given]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
function el(name, given = {}, ...children) {
  return fill(document.createElement(name), given, children);
}

/**
 * An element of a drawing.
 * @param {string} name
 * @param {Given} [given]
 * @param {...Child} children
 * @returns {SVGElement}
 */
function svg(name, given = {}, ...children) {
  return fill(/** @type {SVGElement} */ (document.createElementNS(SVG, name)), given, children);
}

/**
 * @template {HTMLElement | SVGElement} Made
 * @param {Made} made
 * @param {Given} given
 * @param {Child[]} children
 * @returns {Made}
 */
function fill(made, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') made.addEventListener(name.slice(2), value);
    else if (name.startsWith('style-')) made.style.setProperty(name.slice(6), String(value));
    else made.setAttribute(name, value === true ? '' : visible(value));
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : visible(child));
  }
  return made;
}

/**
 * A name that a program chose: written out, kept apart from the direction of the text around.
 * @param {unknown} name
 * @param {number} [length]
 */
function named(name, length = 80) {
  const whole = visible(name);
  const shown = shorten(name, length);
  return el('bdi', { title: shown === whole ? null : shorten(name, 2000) }, shown);
}

/**
 * @param {string} label
 * @param {() => void} act
 * @param {Given} [given]
 */
function button(label, act, given = {}) {
  return el('button', { type: 'button', onclick: act, ...given }, label);
}

/**
 * A choice of one of several.
 * @param {string} label
 * @param {[value: string, label: string][]} options
 * @param {(value: string) => void} chosen
 */
function choice(label, options, chosen) {
  /** @type {HTMLSelectElement} */
  const select = el(
    'select',
    { onchange: () => chosen(select.value) },
    ...options.map(([value, words]) => el('option', { value }, shorten(words, 60))),
  );
  return el('label', {}, `${label} `, select);
}

/**
 * A part of the page with its heading, its tools, and a button that saves its data.
 * @param {string} id
 * @param {string} title
 * @param {{ tools?: Child[], csv?: () => Csv, about?: string }} [more]
 */
function section(id, title, more = {}) {
  const { tools = [], csv, about } = more;
  const save = csv && button('CSV', () => saveCsv(csv()), { title: 'save the data of this picture' });
  return el(
    'section',
    { id, 'aria-labelledby': `${id}-title` },
    el(
      'div',
      { class: 'head' },
      el('h2', { id: `${id}-title` }, title),
      el('div', { class: 'tools' }, ...tools, save),
    ),
    about && el('p', { class: 'quiet' }, about),
  );
}

/**
 * @typedef {object} Csv
 * @property {string} name
 * @property {string[]} columns
 * @property {Iterable<unknown[]>} rows
 */

/**
 * Saves rows as a file, without a request: the file is made here.
 * @param {Csv} csv
 */
function saveCsv(csv) {
  const lines = [csv.columns.map(quote).join(',')];
  for (const row of csv.rows) lines.push(row.map(quote).join(','));
  const file = new Blob([lines.join('\r\n'), '\r\n'], { type: 'text/csv' });
  const url = URL.createObjectURL(file);
  el('a', { href: url, download: `memtrace-${csv.name}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/**
 * A table of words and figures; a column whose name begins with `>` stands on the right.
 * @param {string} caption
 * @param {string[]} titles
 * @param {Child[][]} rows
 */
function table(caption, titles, rows) {
  const side = (/** @type {number} */ column) => (titles[column]?.startsWith('>') ? 'figure' : null);
  return el(
    'table',
    {},
    el('caption', {}, caption),
    el(
      'thead',
      {},
      el('tr', {}, ...titles.map((title, at) => el('th', { scope: 'col', class: side(at) }, title.replace(/^>/, '')))),
    ),
    el(
      'tbody',
      {},
      ...rows.map((row) => el('tr', {}, ...row.map((cell, at) => el('td', { class: side(at) }, cell)))),
    ),
  );
}
