// All processes in a table: sort, search, choose columns. Rows are added in pieces as the reader
// comes to them, so that thousands stay quick.

const PIECE = 100;
const BOUND_SIGNS = { exact: '', within_error: '± ', at_least: '≥ ', at_most: '≤ ', about: '≈ ' };

/**
 * @typedef {object} TableRow
 * @property {PageProcess} process
 * @property {Process | undefined} told What the report tells of it.
 * @property {string} words What the search looks at.
 */

/**
 * A column: what it shows, what it is sorted by, and whether it is there at first.
 * @typedef {object} TableColumn
 * @property {string} title
 * @property {boolean} [isFigure]
 * @property {boolean} [isOff]
 * @property {boolean} [isUnbroken] It stands on one line.
 * @property {(row: TableRow) => Child} show
 * @property {(row: TableRow) => Maybe | string | undefined} value
 */

/** @param {Maybe | undefined} nanoseconds */
function atWords(nanoseconds) {
  return typeof nanoseconds === 'number' ? after(nanoseconds / NS) : UNKNOWN;
}

/** @param {TableRow} row */
function lived({ process }) {
  return process.end_ns === null ? null : process.end_ns - process.begin_ns;
}

/** @param {TableRow} row */
function peakWords({ process }) {
  const bound = process.peak_bound;
  const sign = bound ? BOUND_SIGNS[/** @type {keyof BOUND_SIGNS} */ (bound)] ?? '' : '';
  const error = process.peak_bound_bytes;
  const within = bound === 'within_error' && error ? ` ± ${bytes(error)}` : '';
  return within ? `${bytes(process.peak_bytes)}${within}` : `${sign}${bytes(process.peak_bytes)}`;
}

/** @returns {TableColumn[]} */
function processColumns() {
  const kind = (/** @type {keyof Amounts} */ key, /** @type {string} */ title, isOff = false) => ({
    title,
    isFigure: true,
    isOff,
    show: (/** @type {TableRow} */ { told }) => (told ? bytes(told.peak.series[key]) : ''),
    value: (/** @type {TableRow} */ { told }) => told?.peak.series[key],
  });
  const text = (/** @type {string} */ title, /** @type {(row: TableRow) => unknown} */ read, isOff = false) => ({
    title,
    isOff,
    show: (/** @type {TableRow} */ row) => {
      const value = read(row);
      return value === null || value === undefined ? '' : named(value, 60);
    },
    value: (/** @type {TableRow} */ row) => /** @type {string | number | null | undefined} */ (read(row)),
  });
  return [
    { title: 'pid', isFigure: true, show: ({ process }) => process.pid ?? UNKNOWN, value: ({ process }) => process.pid },
    {
      title: 'name',
      show: ({ process }) => el('span', {}, process.role !== null && el('span', { class: 'swatch', 'style-background': colours.of(process.role) }), named(process.name, 60)),
      value: ({ process }) => process.name,
    },
    text('role', ({ process }) => process.role, true),
    { title: 'peak RSS', isFigure: true, show: peakWords, value: ({ process }) => process.peak_bytes },
    { title: 'reached', isFigure: true, show: ({ process }) => atWords(process.peak_at_ns), value: ({ process }) => process.peak_at_ns },
    kind('anon_bytes', 'anon'),
    kind('shmem_bytes', 'shmem'),
    kind('file_bytes', 'file'),
    kind('swap_bytes', 'swap', true),
    { title: 'started', isFigure: true, show: ({ process }) => atWords(process.begin_ns), value: ({ process }) => process.begin_ns },
    { title: 'lived', isFigure: true, show: (row) => { const ns = lived(row); return ns === null ? 'to the end' : duration(ns / NS); }, value: (row) => lived(row) ?? Infinity },
    { ...text('ended', ({ process }) => process.ending), isUnbroken: true },
    {
      title: 'grew an hour',
      isFigure: true,
      isOff: true,
      show: ({ told }) => (told?.growth ? `${change(told.growth.bytes_per_hour)} (${told.growth.verdict.replace('_', ' ')})` : ''),
      value: ({ told }) => told?.growth?.bytes_per_hour,
    },
    text('cgroup', ({ process }) => process.cgroup, true),
    text('parent', ({ told }) => told?.parent_upid, true),
    text('user', ({ told }) => told?.uid, true),
    text('command line', ({ process, told }) => told?.cmdline ?? process.title, true),
  ];
}

/**
 * What the report says of processes, by their ids.
 * @param {PageDocument} doc
 */
function toldByUpid(doc) {
  return new Map(doc.report.processes.map((process) => [process.upid, process]));
}

class ProcessTable {
  /** @param {PageDocument} doc */
  constructor(doc) {
    const told = toldByUpid(doc);
    this.rows = doc.processes.map((process) => {
      const more = told.get(process.upid);
      const words = [process.pid, process.name, process.role, process.title, process.ending, process.cgroup, more?.cmdline, more?.comm];
      return { process, told: more, words: words.map((word) => visible(word ?? '')).join(' ').toLowerCase() };
    });
    this.columns = processColumns();
    // A column of nothing is not shown unless it is asked for.
    this.on = new Set(this.columns.filter(({ isOff, value }) => !isOff && this.rows.some((row) => (value(row) ?? null) !== null)));
    this.by = /** @type {TableColumn} */ (this.columns.find(({ title }) => title === 'peak RSS'));
    this.isDown = true;
    this.search = '';
    /** @type {TableRow[]} What is searched for, in order. */
    this.sorted = [];
    this.head = el('tr', {});
    this.body = el('tbody', {});
    this.count = el('span', { class: 'quiet', 'aria-live': 'polite' });
    this.foot = el('p', { class: 'more' });
    this.element = el('div', { class: 'wide rows', tabindex: 0, role: 'region', 'aria-label': 'processes' },
      el('table', { class: 'processes' }, el('caption', {}, 'processes'), el('thead', {}, this.head), this.body), this.foot);
    this.seer = new IntersectionObserver((seen) => seen.some(({ isIntersecting }) => isIntersecting) && this.add(), { root: this.element, rootMargin: '400px' });
    this.seer.observe(this.foot);
    this.update();
  }

  /** The rows that are searched for, in order; what is unknown comes last. */
  get chosen() {
    const words = this.search.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.rows.filter((row) => words.every((word) => row.words.includes(word)));
    const keyed = found.map((row) => ({ row, key: this.by.value(row) ?? null }));
    const sign = this.isDown ? -1 : 1;
    keyed.sort(({ key: one }, { key: other }) => {
      if (one === null || other === null) return Number(one === null) - Number(other === null);
      if (one === other) return 0;
      return (one < other ? -1 : 1) * sign;
    });
    return keyed.map(({ row }) => row);
  }

  update() {
    this.sorted = this.chosen;
    const heads = this.columns.filter((column) => this.on.has(column)).map((column) => {
      const isBy = column === this.by;
      const sort = isBy ? (this.isDown ? 'descending' : 'ascending') : null;
      return el('th', { scope: 'col', class: column.isFigure ? 'figure' : null, 'aria-sort': sort },
        button(`${column.title}${isBy ? (this.isDown ? ' ▾' : ' ▴') : ''}`, () => this.sortBy(column)));
    });
    this.head.replaceChildren(...heads);
    this.body.replaceChildren();
    const all = counted(this.rows.length, 'process', 'processes');
    this.count.textContent = this.sorted.length === this.rows.length ? all : `${count(this.sorted.length)} of ${all}`;
    this.element.scrollTop = 0;
    this.add();
  }

  /** @param {TableColumn} column */
  sortBy(column) {
    this.isDown = column === this.by ? !this.isDown : Boolean(column.isFigure);
    this.by = column;
    this.update();
    const place = this.columns.filter((one) => this.on.has(one)).indexOf(column);
    this.head.children[place]?.querySelector('button')?.focus();
  }

  /** @param {number} [most] */
  add(most = PIECE) {
    const { sorted } = this;
    const there = this.body.childElementCount;
    const columns = this.columns.filter((column) => this.on.has(column));
    const rows = sorted.slice(there, there + most).map((row) =>
      el('tr', {}, ...columns.map(({ isFigure, isUnbroken, show }) => el('td', { class: isFigure ? 'figure' : isUnbroken ? 'unbroken' : null }, show(row)))));
    this.body.append(...rows);
    const left = sorted.length - there - rows.length;
    this.foot.textContent = left > 0 ? `${count(left)} more below` : '';
  }
}

/** @param {Recorded} all */
function processesSection(all) {
  if (all.doc.processes.length === 0) return null;
  const shown = new ProcessTable(all.doc);
  const search = el('input', { type: 'search', placeholder: 'name, pid, command line', oninput: () => {
    shown.search = search.value;
    shown.update();
  } });
  const boxes = shown.columns.map((column) => {
    const box = el('input', { type: 'checkbox', checked: shown.on.has(column), onchange: () => {
      if (!shown.on.delete(column)) shown.on.add(column);
      shown.update();
    } });
    return el('label', {}, box, ` ${column.title}`);
  });
  const left = all.doc.report.process_count - all.doc.processes.length;
  const made = section('processes', 'Processes', {
    tools: [shown.count, el('label', {}, 'search ', search), el('details', { class: 'menu' }, el('summary', {}, 'columns'), el('div', {}, ...boxes))],
    about: left > 0 ? `The ${count(left)} with the lowest peaks are left out; the report as JSON has all.` : '',
    csv: () => {
      const columns = shown.columns.filter((column) => shown.on.has(column));
      return {
        name: 'processes',
        columns: columns.map(({ title }) => title),
        rows: shown.sorted.map((row) => columns.map(({ value }) => { const cell = value(row); return cell === Infinity ? null : cell; })),
      };
    },
  });
  made.append(shown.element);
  addEventListener('beforeprint', () => shown.add(PIECE));
  restyled(() => shown.update());
  return made;
}
