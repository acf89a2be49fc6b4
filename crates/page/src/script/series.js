// Step functions: read from the document, asked for a value, drawn by columns of pixels.

/**
 * Values at instants that all series of a picture share; NaN is unknown.
 * @typedef {object} Steps
 * @property {string} id
 * @property {string} name
 * @property {Maybe} pid
 * @property {Maybe} upid
 * @property {Float64Array} seconds
 * @property {Float64Array} values
 * @property {number} before What it is before the first instant.
 * @property {boolean} [isRead] Whether each value is a reading, which can be older than what else is shown.
 */

/**
 * What a step function does within each column of pixels: its lowest and highest value there,
 * the one that it enters with and the one that it leaves with.
 * @typedef {object} Columns
 * @property {Float64Array} low
 * @property {Float64Array} high
 * @property {Float64Array} first
 * @property {Float64Array} last
 */

/**
 * Instants, in seconds, from gaps in nanoseconds. A damaged gap never leads back in time.
 * @param {number[] | undefined} gaps
 */
function instants(gaps) {
  const seconds = new Float64Array(gaps?.length ?? 0);
  let now = 0;
  gaps?.forEach((gap, place) => {
    if (Number.isFinite(gap) && (place === 0 || gap > 0)) now += gap;
    seconds[place] = now / NS;
  });
  return seconds;
}

/**
 * @param {WrittenSeries} written
 * @param {Float64Array} seconds
 * @param {number} [before] What it is before its first change: processes hold nothing.
 * @returns {Steps}
 */
function steps(written, seconds, before = 0) {
  const values = new Float64Array(seconds.length);
  let place = 0;
  let known = 0;
  let value = before;
  written.at.forEach((gap, index) => {
    const next = Math.min(Math.max(place + gap, place), seconds.length);
    for (; place < next; place += 1) values[place] = value;
    const difference = written.bytes[index];
    if (typeof difference === 'number') known += difference;
    value = typeof difference === 'number' ? known : NaN;
  });
  values.fill(value, place);
  const { id, name, pid = null, upid = null } = written;
  return { id, name, pid, upid, seconds, values, before };
}

/**
 * How many of ascending instants are at or before one.
 * @param {Float64Array} seconds
 * @param {number} instant
 */
function countUpTo(seconds, instant) {
  let low = 0;
  let high = seconds.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (/** @type {number} */ (seconds[middle]) <= instant) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The value that holds at an instant; null where it is unknown.
 * @param {Steps} series
 * @param {number} instant
 * @returns {Maybe}
 */
function valueAt(series, instant) {
  const place = countUpTo(series.seconds, instant);
  const value = place === 0 ? series.before : /** @type {number} */ (series.values[place - 1]);
  return Number.isNaN(value) ? null : value;
}

/**
 * When the value that holds at an instant was first read; null where that is not said, or nothing is
 * known. Other series have instants here, too, at which nothing was read.
 * @param {Steps} series
 * @param {number} instant
 * @returns {Maybe}
 */
function readAt(series, instant) {
  const { seconds, values, isRead } = series;
  let place = isRead ? countUpTo(seconds, instant) : 0;
  while (place > 1 && values[place - 2] === values[place - 1]) place -= 1;
  return seconds[place - 1] ?? null;
}

/**
 * The highest value of a stretch of time, and 0 where nothing is known of it.
 * @param {Float64Array} seconds
 * @param {Float64Array} values
 * @param {number} from
 * @param {number} to
 */
function highest(seconds, values, from, to) {
  let most = 0;
  const end = countUpTo(seconds, to);
  for (let place = Math.max(0, countUpTo(seconds, from) - 1); place < end; place += 1) {
    const value = /** @type {number} */ (values[place]);
    if (value > most) most = value;
  }
  return most;
}

/**
 * Where each column of pixels begins in a list of instants; one more than there are columns.
 * @param {Float64Array} seconds
 * @param {number} from
 * @param {number} to
 * @param {number} width
 */
function columnStarts(seconds, from, to, width) {
  const starts = new Int32Array(width + 1);
  let place = countUpTo(seconds, from);
  for (let column = 0; column <= width; column += 1) {
    const begin = from + ((to - from) * column) / width;
    while (place < seconds.length && /** @type {number} */ (seconds[place]) < begin) place += 1;
    starts[column] = place;
  }
  // What holds at the left edge may have begun exactly there.
  starts[0] = countUpTo(seconds, from);
  return starts;
}

/**
 * A spike that is shorter than a column is in its `high`, however far the picture is zoomed out.
 * @param {Float64Array} values
 * @param {Int32Array} starts
 * @param {number} [before] What it is before the first instant.
 * @returns {Columns}
 */
function columns(values, starts, before = 0) {
  const width = starts.length - 1;
  const made = {
    low: new Float64Array(width),
    high: new Float64Array(width),
    first: new Float64Array(width),
    last: new Float64Array(width),
  };
  const held = /** @type {number} */ (starts[0]);
  let value = held === 0 ? before : /** @type {number} */ (values[held - 1]);
  for (let column = 0; column < width; column += 1) {
    made.first[column] = value;
    let low = value;
    let high = value;
    const end = /** @type {number} */ (starts[column + 1]);
    for (let place = /** @type {number} */ (starts[column]); place < end; place += 1) {
      value = /** @type {number} */ (values[place]);
      // The known value wins over an unknown one: `low` and `high` are NaN only where all is.
      if (!(value >= low)) low = Number.isNaN(value) ? low : value;
      if (!(value <= high)) high = Number.isNaN(value) ? high : value;
    }
    made.low[column] = low;
    made.high[column] = high;
    made.last[column] = value;
  }
  return made;
}

/**
 * Sums of the series up to each, so that the last is the height of the stack. What is unknown
 * adds nothing.
 * @param {Steps[]} series
 */
function stacked(series) {
  /** @type {Float64Array[]} */
  const sums = [];
  for (const one of series) {
    const below = sums[sums.length - 1];
    const sum = new Float64Array(one.values.length);
    for (let place = 0; place < sum.length; place += 1) {
      const value = /** @type {number} */ (one.values[place]);
      const base = below ? /** @type {number} */ (below[place]) : 0;
      sum[place] = base + (value > 0 ? value : 0);
    }
    sums.push(sum);
  }
  return sums;
}
