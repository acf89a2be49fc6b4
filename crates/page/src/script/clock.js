// Instants in the two ways in which a reader may look for them: since the start, and by the clock.

class Clock {
  /**
   * @param {Maybe} startUnixNs
   * @param {number} length In seconds.
   */
  constructor(startUnixNs, length) {
    this.startMs = typeof startUnixNs === 'number' && startUnixNs > 0 ? startUnixNs / 1e6 : null;
    this.isLong = length >= 86400;
  }

  /**
   * `12:03:06.500 UTC`, with the date in a recording that is longer than a day; empty where no
   * clock is known.
   * @param {number} seconds
   */
  wall(seconds) {
    const time = new Date(this.startMs === null ? NaN : this.startMs + seconds * 1000);
    if (Number.isNaN(time.getTime())) return '';
    const text = time.toISOString().slice(0, -1);
    return `${this.isLong ? text.replace('T', ' ') : text.slice(text.indexOf('T') + 1)} UTC`;
  }

  /**
   * `+82.5s, 12:03:06.500 UTC`.
   * @param {number} seconds
   * @param {number} [step]
   */
  both(seconds, step) {
    const wall = this.wall(seconds);
    return wall ? `${after(seconds, step)}, ${wall}` : after(seconds, step);
  }
}
