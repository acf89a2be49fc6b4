// What pictures over time share: the stretch that is shown, the cursor, the instant that is pinned.

const SHORTEST = 1e-6;
// As browsers wait for the second click.
const DOUBLE_CLICK_MS = 300;

/**
 * @typedef {object} Watcher
 * @property {() => void} [zoomed] Another stretch is shown.
 * @property {() => void} [pointed] The cursor is elsewhere, or gone.
 * @property {() => void} [pinned] Another instant is pinned, or none.
 */

class View {
  /**
   * @param {number} begin
   * @param {number} end
   */
  constructor(begin, end) {
    this.begin = begin;
    this.end = end > begin ? end : begin + 1;
    this.from = this.begin;
    this.to = this.end;
    /** A click that may become the first of two. */
    this.clicked = 0;
    /** @type {number | null} What was pinned before it. */
    this.unclicked = null;
    /** @type {number | null} */
    this.cursor = null;
    /** @type {number | null} */
    this.pin = null;
    /** @type {Watcher[]} */
    this.watchers = [];
    /** @type {Set<'zoomed' | 'pointed' | 'pinned'>} */
    this.changes = new Set();
  }

  /** @param {Watcher} watcher */
  watch(watcher) {
    this.watchers.push(watcher);
  }

  /**
   * Tells of a change once a frame, whatever came in between.
   * @param {'zoomed' | 'pointed' | 'pinned'} change
   */
  tell(change) {
    if (this.changes.size === 0) {
      requestAnimationFrame(() => {
        const changes = [...this.changes];
        this.changes.clear();
        for (const one of changes) for (const watcher of this.watchers) watcher[one]?.();
      });
    }
    this.changes.add(change);
  }

  /**
   * Begins and ends elsewhere, and shows all of that.
   * @param {number} begin
   * @param {number} end
   */
  cover(begin, end) {
    this.begin = begin;
    this.end = end > begin ? end : begin + 1;
    this.point(null);
    this.reset();
  }

  /**
   * Shows a stretch, within the recording and no shorter than a microsecond.
   * @param {number} from
   * @param {number} to
   */
  zoom(from, to) {
    const length = Math.min(Math.max(to - from, SHORTEST), this.end - this.begin);
    this.from = Math.min(Math.max(from, this.begin), this.end - length);
    this.to = this.from + length;
    this.tell('zoomed');
  }

  reset() {
    this.zoom(this.begin, this.end);
  }

  /**
   * Zooms around the cursor.
   * @param {number} factor
   */
  scale(factor) {
    const centre = this.cursor ?? (this.from + this.to) / 2;
    const length = this.to - this.from;
    const least = Math.max(factor, Math.min(1, SHORTEST / length));
    this.zoom(centre - (centre - this.from) * least, centre + (this.to - centre) * least);
  }

  /** @param {number | null} instant */
  point(instant) {
    this.cursor = instant === null ? null : Math.min(Math.max(instant, this.begin), this.end);
    this.tell('pointed');
  }

  /** @param {number | null} instant */
  pinAt(instant) {
    this.pin = instant;
    this.tell('pinned');
  }

  /**
   * A click pins once it is known to be no double click: what appears with a pin would move the
   * picture from below the second.
   * @param {number} instant
   * @param {number} count Which of quick clicks it is.
   */
  click(instant, count) {
    clearTimeout(this.clicked);
    if (count > 1) {
      if (this.pin !== this.unclicked) this.pinAt(this.unclicked);
      return;
    }
    this.unclicked = this.pin;
    this.clicked = setTimeout(() => this.pinAt(instant), DOUBLE_CLICK_MS);
  }

  /**
   * Keys of every picture over time.
   * @param {KeyboardEvent} event
   */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = ((this.to - this.from) / 400) * (event.shiftKey ? 20 : 1);
    const cursor = this.cursor ?? this.pin ?? (this.from + this.to) / 2;
    /** @type {{ [key: string]: () => void }} */
    const acts = {
      ArrowLeft: () => this.move(cursor - step),
      ArrowRight: () => this.move(cursor + step),
      Home: () => this.move(this.from),
      End: () => this.move(this.to),
      Enter: () => this.pinAt(cursor),
      ' ': () => this.pinAt(cursor),
      Escape: () => (this.pin === null ? this.point(null) : this.pinAt(null)),
      '+': () => this.scale(1 / 2),
      '=': () => this.scale(1 / 2),
      '-': () => this.scale(2),
      0: () => this.reset(),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /**
   * Moves the cursor, and the picture with it where it would leave it.
   * @param {number} instant
   */
  move(instant) {
    const length = this.to - this.from;
    if (instant < this.from) this.zoom(instant - length / 4, instant + (3 * length) / 4);
    if (instant > this.to) this.zoom(instant - (3 * length) / 4, instant + length / 4);
    this.point(instant);
  }
}
