// The exact values of a chart at the cursor, the largest first; the legend at the same time.

/**
 * @typedef {object} Entry
 * @property {Steps} series
 * @property {string} colour
 * @property {string[]} [marks] What stands for a line that is dashed.
 */

// A reading that is older by so many seconds says when it was.
const OLDER = 0.01;

class Readout {
  /**
   * @param {View} view
   * @param {Clock} clock
   * @param {{ resting: () => [instant: number, words: string], toggled?: () => void, more?: (instant: number) => Child[] }} given
   */
  constructor(view, clock, { resting, toggled, more }) {
    this.view = view;
    this.clock = clock;
    this.resting = resting;
    this.toggled = toggled;
    this.more = more;
    /** @type {Set<string>} */
    this.hidden = new Set();
    /** @type {{ entry: Entry, row: HTMLElement, amount: HTMLElement }[]} */
    this.layers = [];
    /** @type {{ entry: Entry, row: HTMLElement, amount: HTMLElement }[]} */
    this.lines = [];
    this.when = el('p', { class: 'when' });
    this.wall = el('p', { class: 'quiet' });
    this.rows = el('ul', { class: 'layers' });
    this.lineRows = el('ul', { class: 'lines' });
    this.extra = el('div', { class: 'extra' });
    this.element = el('div', { class: 'readout' }, this.when, this.wall, this.lineRows, this.rows, this.extra);
    const update = () => this.update();
    view.watch({ zoomed: update, pointed: update, pinned: update });
  }

  /**
   * @param {Entry[]} layers
   * @param {Entry[]} lines
   */
  show(layers, lines) {
    this.layers = layers.map((entry) => this.row(entry, true));
    this.lines = lines.map((entry) => this.row(entry, false));
    this.rows.replaceChildren();
    this.lineRows.replaceChildren(...this.lines.map(({ row }) => row));
    this.update();
  }

  /**
   * @param {Entry} entry
   * @param {boolean} isLayer
   */
  row(entry, isLayer) {
    const { series, colour } = entry;
    const amount = el('span', { class: 'amount' });
    const swatch = el('span', { class: isLayer ? 'swatch' : 'swatch line', 'style-background': colour });
    const name = [swatch, named(series.name, 46), typeof series.pid === 'number' && el('span', { class: 'quiet' }, ` ${series.pid}`)];
    const isHidden = this.hidden.has(series.id);
    const label = isLayer && this.toggled
      ? el('button', { type: 'button', class: 'name', 'aria-pressed': String(!isHidden), title: 'show or hide', onclick: () => this.toggle(series.id) }, ...name)
      : el('span', { class: 'name' }, ...name);
    return { entry, row: el('li', { class: isHidden ? 'hidden' : null }, label, amount), amount };
  }

  /** @param {string} id */
  toggle(id) {
    if (!this.hidden.delete(id)) this.hidden.add(id);
    this.toggled?.();
    const again = this.layers.find(({ entry }) => entry.series.id === id);
    again?.row.querySelector('button')?.focus();
  }

  /** The instant that is read, and what it is. */
  instant() {
    const { cursor, pin } = this.view;
    if (cursor !== null) return { at: cursor, words: '' };
    if (pin !== null) return { at: pin, words: 'pinned' };
    const [at, words] = this.resting();
    return { at, words };
  }

  update() {
    const { at, words } = this.instant();
    const step = (this.view.to - this.view.from) / 1000;
    this.when.textContent = `${words ? `${words}: ` : ''}${after(at, Math.min(step, 0.1))}`;
    this.wall.textContent = this.clock.wall(at);
    const values = this.layers.map((one) => ({ ...one, value: valueAt(one.entry.series, at) }));
    values.sort((one, other) => (other.value ?? -1) - (one.value ?? -1));
    for (const { row, amount, value } of values) {
      amount.textContent = bytes(value);
      amount.title = value === null ? 'unknown' : `${count(value)} bytes`;
      row.classList.toggle('zero', value === 0);
      this.rows.append(row);
    }
    for (const { entry, amount } of this.lines) {
      const value = valueAt(entry.series, at);
      const read = value === null ? null : readAt(entry.series, at);
      const isOlder = read !== null && at - read > OLDER;
      amount.textContent = isOlder ? `${bytes(value)} since ${after(read, OLDER)}` : bytes(value);
      amount.title = value === null ? 'unknown' : `${count(value)} bytes`;
    }
    this.extra.replaceChildren(...(this.more?.(at) ?? []).map((child) => el('p', {}, child)));
  }
}
