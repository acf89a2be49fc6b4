// Colours: one for each name (a role, a process without one, a cgroup) and one for each kind of memory,
// the same in every picture. Those of names are bright, told apart by people who see red and green
// alike (after Okabe and Ito), on light and on dark ground; those of kinds are dull.

const HUES = {
  light: ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b8a900', '#6a51a3'],
  dark: ['#3d9be0', '#f0b429', '#2bbf93', '#d98cb8', '#8fd0f5', '#f07b3a', '#d8cc3c', '#a48ee0'],
};
/** @type {{ light: { [kind: string]: string }, dark: { [kind: string]: string } }} */
const KINDS = {
  light: { anon: '#3f5673', shmem: '#9a7b4f', file: '#93ab8c', swap: '#7d4658', kernel: '#b9a3b0' },
  dark: { anon: '#7f98ba', shmem: '#b89a6a', file: '#5f7a5c', swap: '#c08a9c', kernel: '#75616d' },
};
// From little to much: dark violet to yellow, in steps of equal lightness (viridis).
const RAMP = ['#440154', '#46327e', '#365c8d', '#277f8e', '#1fa187', '#4ac16d', '#a0da39', '#fde725'];

const darkScheme = matchMedia('(prefers-color-scheme: dark)');
let isPrinted = false;

const colours = {
  /** @type {Map<string, number>} */
  places: new Map(),
  /** @type {Map<string, string>} Of the style sheet, until the scheme changes. */
  grounds: new Map(),

  get isDark() {
    return darkScheme.matches && !isPrinted;
  },

  /**
   * A colour of the style sheet.
   * @param {string} name
   */
  ground(name) {
    const known = this.grounds.get(name);
    if (known !== undefined) return known;
    const colour = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    this.grounds.set(name, colour);
    return colour;
  },

  /**
   * Takes the next place for a name that has none.
   * @param {string} name
   */
  place(name) {
    const shown = visible(name);
    const known = this.places.get(shown);
    if (known !== undefined) return known;
    this.places.set(shown, this.places.size);
    return this.places.size - 1;
  },

  /**
   * The colour of a name. Those beyond the eighth repeat the hues paler.
   * @param {string} name
   */
  of(name) {
    const place = this.place(name);
    const hues = this.isDark ? HUES.dark : HUES.light;
    const hue = /** @type {string} */ (hues[place % hues.length]);
    const round = Math.floor(place / hues.length);
    return round === 0 ? hue : mixed(hue, this.isDark ? '#20242c' : '#ffffff', Math.min(0.72, 0.36 * round));
  },

  /**
   * The colour of a series by what it is one of.
   * @param {string} by
   * @param {{ id: string, name: string }} series
   */
  series(by, { id, name }) {
    if (id === 'rest' || id === 'unattributed') return this.rest;
    if (id === 'reserved') return this.isDark ? '#4b5563' : '#c9ced6';
    return by === 'kind' ? this.kind(id) : this.of(name);
  },

  /** The colour of what nothing explains. */
  get rest() {
    return this.isDark ? '#6b7280' : '#a3a9b3';
  },

  /**
   * @param {string} kind
   */
  kind(kind) {
    const known = Object.entries(this.isDark ? KINDS.dark : KINDS.light).find(([name]) => kind.startsWith(name));
    return known ? known[1] : this.rest;
  },

  /**
   * From little (0) to much (1).
   * @param {number} part
   */
  ramp(part) {
    const place = Math.min(RAMP.length - 1, Math.max(0, Math.round(part * (RAMP.length - 1))));
    return /** @type {string} */ (RAMP[place]);
  },
};

/**
 * @param {string} colour
 * @param {string} other
 * @param {number} part Of the other.
 */
function mixed(colour, other, part) {
  const channels = [1, 3, 5].map((at) => {
    const [one, two] = [colour, other].map((text) => parseInt(text.slice(at, at + 2), 16));
    return Math.round(Number(one) * (1 - part) + Number(two) * part)
      .toString(16)
      .padStart(2, '0');
  });
  return `#${channels.join('')}`;
}
