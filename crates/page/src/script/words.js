// Figures, times and names in the words of the text report.

const UNKNOWN = '?';
const NS = 1e9;

/**
 * `14.2 GiB`: powers of 1024, one decimal below 100.
 * @param {Maybe | undefined} amount
 */
function bytes(amount) {
  if (amount === null || amount === undefined || !Number.isFinite(amount)) return UNKNOWN;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = amount;
  let unit = 0;
  // 1023.95 would be rounded to 1024.0.
  while (Math.abs(value) >= 999.5 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${toFixed(value, unit > 1 && Math.abs(value) < 99.95 ? 1 : 0)} ${units[unit]}`;
}

/**
 * Rounds a half to the even digit, as the report does: amounts of a quarter GiB are common, and
 * toFixed alone would write 14.3 for 14.25.
 * @param {number} value
 * @param {number} decimals
 */
function toFixed(value, decimals) {
  const scale = 10 ** decimals;
  const scaled = value * scale;
  const below = Math.floor(scaled);
  const isHalf = scaled - below === 0.5;
  const whole = isHalf ? below + (below % 2 === 0 ? 0 : 1) : Math.round(scaled);
  return (whole / scale).toFixed(decimals);
}

/**
 * `+1.2 GiB`, `-64.0 MiB`, and a dash for no change.
 * @param {Maybe | undefined} amount
 */
function change(amount) {
  if (amount === 0) return '-';
  return (amount ?? 0) > 0 ? `+${bytes(amount)}` : bytes(amount);
}

/**
 * `36%` of a whole.
 * @param {Maybe} part
 * @param {Maybe} whole
 */
function share(part, whole) {
  if (part === null || whole === null) return UNKNOWN;
  if (whole <= 0) return '-';
  const percent = (part * 100) / whole;
  if (Math.round(percent) === 0 && percent !== 0) return '<1%';
  return percent >= 999.5 ? '>999%' : `${Math.round(percent)}%`;
}

/**
 * `83.2s`, `14m23s`, `3h05m12s`, `2d03h05m`; with more digits where `step` is below them.
 * @param {number} seconds
 * @param {number} [step] What two neighbours differ by, in seconds.
 */
function duration(seconds, step = 1) {
  const sign = seconds < 0 ? '-' : '';
  const length = Math.abs(seconds);
  const fraction = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  if (length === 0) return '0s';
  if (length < 99.95) {
    const decimals = Math.max(fraction, step < 1 ? 0 : length < 0.9995 ? 3 : 1);
    return `${sign}${length.toFixed(decimals)}s`;
  }
  const rounded = Number(length.toFixed(fraction));
  const parts = Math.floor(rounded);
  const two = (/** @type {number} */ part) => String(part).padStart(2, '0');
  const rest = fraction ? (rounded - parts).toFixed(fraction).slice(1) : '';
  const [days, hours, minutes] = [
    Math.floor(parts / 86400),
    Math.floor(parts / 3600) % 24,
    Math.floor(parts / 60) % 60,
  ];
  if (parts < 3600) return `${sign}${minutes}m${two(parts % 60)}${rest}s`;
  if (parts < 86400) return `${sign}${hours}h${two(minutes)}m${two(parts % 60)}${rest}s`;
  const tail = step < 60 ? `${two(parts % 60)}${rest}s` : '';
  return `${sign}${days}d${two(hours)}h${two(minutes)}m${tail}`;
}

/**
 * `+83.2s`: so long after the start of the recording.
 * @param {number} seconds
 * @param {number} [step]
 */
function after(seconds, step) {
  return seconds < 0 ? duration(seconds, step) : `+${duration(seconds, step)}`;
}

/**
 * `1,204`.
 * @param {number} number
 */
function count(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/**
 * `1 process`, `12 processes`.
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// Controls, marks of direction, and characters without width, which can make two names look the
// same: the list of `is_hidden` in report/visible.rs.
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/**
 * The text with what would not show, or would turn the text around, written out.
 * @param {unknown} text
 */
function visible(text) {
  return String(text ?? UNKNOWN).replace(HIDDEN, (hidden) => {
    const code = /** @type {number} */ (hidden.codePointAt(0));
    if (hidden === '\n') return '\\n';
    if (hidden === '\r') return '\\r';
    if (hidden === '\t') return '\\t';
    return code < 0x80 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
  });
}

/**
 * At most `length` characters, the middle left out: a command line says most at its ends.
 * @param {unknown} text
 * @param {number} length
 */
function shorten(text, length) {
  const characters = Array.from(visible(text));
  if (characters.length <= length) return characters.join('');
  const tail = Math.floor((length - 1) / 3);
  const head = characters.slice(0, length - 1 - tail);
  return `${head.join('')}…${tail ? characters.slice(-tail).join('') : ''}`;
}

/**
 * A cell of CSV that a spreadsheet shows and does not run, as report/csv.rs writes it.
 * @param {unknown} cell
 */
function quote(cell) {
  if (cell === null || cell === undefined) return '';
  let text = visible(cell);
  if (/^[=+\-@]/.test(text) && !Number.isFinite(Number(text))) text = `'${text}`;
  return /[,"']|^ | $/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
