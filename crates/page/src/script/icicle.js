// A sum and its parts, in rows: each part as wide as its amount, below the part that it belongs to.

/**
 * @typedef {object} Part
 * @property {string} name
 * @property {number} bytes
 * @property {string} colour
 * @property {string} [about]
 * @property {Part[]} parts They add up to `bytes`.
 */

// Narrower cells are gathered in one: too small to hit or to read.
const NARROWEST = 0.15;

class Icicle {
  /**
   * @param {Part} whole
   * @param {string} label
   * @param {number} [height] Of a row, in rem.
   */
  constructor(whole, label, height = 2.1) {
    this.whole = whole;
    this.height = height;
    /** What is searched for, in small letters. */
    this.wanted = '';
    /** @type {Part[]} What is opened, from the whole down. */
    this.path = [whole];
    this.element = el('div', {
      class: 'icicle',
      role: 'group',
      'aria-label': `${label}: ${bytes(whole.bytes)}. Enter opens a part, Escape goes back.`,
      onkeydown: (event) => this.key(event),
    });
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key !== 'Escape' || this.path.length === 1) return;
    this.path.pop();
    this.draw(this.path[this.path.length - 1]);
    event.stopPropagation();
  }

  /** @param {Part} [focused] */
  draw(focused) {
    this.element.replaceChildren();
    this.cells.clear();
    const opened = /** @type {Part} */ (this.path[this.path.length - 1]);
    this.path.slice(0, -1).forEach((part, depth) => this.cell(part, depth, 0, 100));
    const levels = this.lay(opened, this.path.length - 1, 0, 100);
    this.element.style.height = `${levels * this.height}rem`;
    if (focused) this.cells.get(focused)?.focus();
  }

  /** @type {Map<Part, HTMLElement>} */
  cells = new Map();

  /**
   * Draws a part and what it consists of; gives how many levels there are.
   * @param {Part} part
   * @param {number} depth
   * @param {number} left
   * @param {number} width
   * @returns {number}
   */
  lay(part, depth, left, width) {
    this.cell(part, depth, left, width);
    let levels = depth + 1;
    let at = left;
    let small = 0;
    let smallBytes = 0;
    const all = Math.max(part.bytes, part.parts.reduce((sum, one) => sum + one.bytes, 0), 1);
    for (const one of [...part.parts].sort((a, b) => b.bytes - a.bytes)) {
      const share = (width * one.bytes) / all;
      if (share < NARROWEST) {
        small += 1;
        smallBytes += one.bytes;
        continue;
      }
      levels = Math.max(levels, this.lay(one, depth + 1, at, share));
      at += share;
    }
    const rest = (width * smallBytes) / all;
    if (rest > 0.05) {
      const name = small === 1 ? '1 smaller part' : `${count(small)} smaller parts`;
      this.cell({ name, bytes: smallBytes, colour: colours.ground('grid'), parts: [] }, depth + 1, at, rest);
      levels = Math.max(levels, depth + 2);
    }
    return levels;
  }

  /**
   * @param {Part} part
   * @param {number} depth
   * @param {number} left
   * @param {number} width
   */
  cell(part, depth, left, width) {
    const words = `${shorten(part.name, 300)}: ${bytes(part.bytes)}, ${share(part.bytes, this.whole.bytes)}${part.about ? `. ${visible(part.about)}` : ''}`;
    const made = el(
      'button',
      {
        type: 'button',
        class: this.wanted && (this.isWanted(part) ? 'found' : 'other'),
        title: words,
        'aria-label': words,
        'style-left': `${left}%`,
        'style-width': `${width}%`,
        'style-top': `${depth * this.height}rem`,
        'style-height': `${this.height - 0.1}rem`,
        'style-background': part.colour,
        'style-color': inkOn(part.colour),
        onclick: () => this.open(part),
      },
      width > 2.5 && el('bdi', {}, shorten(part.name, 60)),
      width > 9 && el('span', { class: 'amount' }, ` ${bytes(part.bytes)}`),
    );
    this.cells.set(part, made);
    this.element.append(made);
  }

  /**
   * Marks the parts with these letters in their name; gives what they hold with all below them.
   * @param {string} text
   */
  find(text) {
    this.wanted = text.trim().toLowerCase();
    this.draw();
    return this.wanted ? this.held(this.whole) : 0;
  }

  /** @param {Part} part */
  isWanted(part) {
    return part.name.toLowerCase().includes(this.wanted);
  }

  /**
   * @param {Part} part
   * @returns {number}
   */
  held(part) {
    return this.isWanted(part) ? part.bytes : part.parts.reduce((sum, one) => sum + this.held(one), 0);
  }

  /** @param {Part} part */
  open(part) {
    const known = this.path.indexOf(part);
    if (known >= 0) this.path.length = known + 1;
    else {
      const way = wayTo(this.whole, part);
      if (way && part.parts.length) this.path = way;
    }
    this.draw(part);
  }
}

/**
 * The parts that lead from a whole to one of them, both included.
 * @param {Part} whole
 * @param {Part} wanted
 * @returns {Part[] | null}
 */
function wayTo(whole, wanted) {
  if (whole === wanted) return [whole];
  for (const part of whole.parts) {
    const way = wayTo(part, wanted);
    if (way) return [whole, ...way];
  }
  return null;
}

/**
 * Black or white, whichever reads better on a colour.
 * @param {string} colour
 */
function inkOn(colour) {
  const light = [1, 3, 5].map((at) => {
    const channel = parseInt(colour.slice(at, at + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
  const [red = 0, green = 0, blue = 0] = light;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? '#111111' : '#ffffff';
}

/**
 * @param {Part} whole
 * @param {string[]} [above]
 * @returns {Generator<unknown[]>}
 */
function* partRows(whole, above = []) {
  const path = [...above, whole.name];
  yield [path.length - 1, path.join(' > '), whole.bytes, whole.about ?? null];
  for (const part of whole.parts) yield* partRows(part, path);
}
