// What stands over the main chart: phases as bands, and flags for kills, marks, losses, the peak.

const BAND_HEIGHT = 15;
const MOST_BAND_ROWS = 8;
const FLAGS_HEIGHT = 16;
// Of more phases the lines between them would hide what they part.
const MOST_EDGES = 12;
// The gravest is drawn last and labelled first.
const FLAG_KINDS = ['mark', 'exit', 'loss', 'peak', 'silent', 'oom'];
const FLAG_WORDS = { mark: 'mark', exit: 'end', loss: 'loss', peak: 'peak', silent: 'not heard from', oom: 'OOM kill' };
const GRAVE_FLAGS = new Set(['oom', 'silent']);

/** @typedef {{ band: Band, begin: number, end: number, row: number }} PlacedBand */

class Overlay {
  /**
   * @param {Band[]} bands
   * @param {Flag[]} flags
   */
  constructor(bands, flags) {
    this.bands = placed(bands);
    this.rows = this.bands.reduce((most, { row }) => Math.max(most, row + 1), 0);
    this.leftOut = bands.length - this.bands.length;
    const known = flags.filter((flag) => Number.isFinite(flag.at_ns));
    this.flags = known
      .map((flag) => ({ ...flag, seconds: flag.at_ns / NS }))
      .sort((one, other) => rankOfFlag(one) - rankOfFlag(other) || one.seconds - other.seconds);
  }

  /** The height above the chart, in CSS pixels. */
  get height() {
    return this.rows * BAND_HEIGHT + (this.flags.length ? FLAGS_HEIGHT : 0) + 6;
  }

  /**
   * What was going on at an instant, the outermost phase first.
   * @param {number} instant
   */
  phasesAt(instant) {
    const open = this.bands.filter(({ begin, end }) => begin <= instant && instant < end);
    return open.sort((one, other) => one.begin - other.begin).map(({ band }) => band);
  }

  /**
   * Flags that are no further from an instant than this.
   * @param {number} instant
   * @param {number} reach
   */
  flagsNear(instant, reach) {
    return this.flags.filter(({ seconds }) => Math.abs(seconds - instant) <= reach).reverse();
  }

  /** @param {Chart} chart */
  draw(chart) {
    const plot = chart.plot;
    if (!plot) return;
    const { ctx } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(plot.bbox.left, 0, plot.bbox.width, ctx.canvas.height);
    ctx.clip();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'middle';
    this.drawBands(ctx, chart);
    this.drawFlags(ctx, chart);
    ctx.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {Chart} chart
   */
  drawBands(ctx, chart) {
    const { from, to } = chart.view;
    const ratio = devicePixelRatio;
    const outer = this.bands.filter(({ row, begin, end }) => row === 0 && end >= from && begin <= to);
    const hasEdges = outer.length <= MOST_EDGES;
    /** @type {number[]} */
    const drawnTo = [];
    for (const { band, begin, end, row } of this.bands) {
      if (end < from || begin > to) continue;
      const left = Math.max(chart.x(begin), chart.left());
      const right = Math.min(chart.x(end), chart.left() + /** @type {uPlot} */ (chart.plot).bbox.width);
      // Of many phases in one pixel one is drawn.
      if (right <= (drawnTo[row] ?? -1)) continue;
      drawnTo[row] = Math.ceil(right);
      const top = row * BAND_HEIGHT * ratio;
      const height = (BAND_HEIGHT - 2) * ratio;
      const colour = colours.ground(row % 2 ? 'band-two' : 'band');
      ctx.fillStyle = colour;
      ctx.fillRect(left, top, Math.max(1, right - left - 1), height);
      if (row === 0 && hasEdges) drawEdges(ctx, chart, begin, end);
      const room = right - left - 8 * ratio;
      if (room < 14 * ratio) continue;
      ctx.fillStyle = colours.ground('ink');
      ctx.fillText(fitting(ctx, visible(band.name), room), left + 4 * ratio, top + height / 2 + ratio);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {Chart} chart
   */
  drawFlags(ctx, chart) {
    const { from, to } = chart.view;
    const ratio = devicePixelRatio;
    const { bbox } = /** @type {uPlot} */ (chart.plot);
    const top = this.rows * BAND_HEIGHT * ratio + 2;
    const seen = this.flags.filter(({ seconds }) => seconds >= from && seconds <= to);
    for (const { seconds, kind } of seen) {
      const x = Math.round(chart.x(seconds)) + 0.5;
      ctx.strokeStyle = colours.ground(GRAVE_FLAGS.has(kind) ? 'alert' : 'quiet');
      ctx.fillStyle = ctx.strokeStyle;
      ctx.lineWidth = (kind === 'oom' ? 1.5 : 1) * ratio;
      ctx.setLineDash(kind === 'oom' ? [] : [3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, top + 6 * ratio);
      ctx.lineTo(x, kind === 'mark' ? bbox.top + 6 * ratio : bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x - 4 * ratio, top);
      ctx.lineTo(x + 4 * ratio, top);
      ctx.lineTo(x, top + 8 * ratio);
      ctx.fill();
    }
    this.labelFlags(ctx, chart, seen, top + 5 * ratio);
  }

  /**
   * Words beside the flags, the gravest first, as far as there is room.
   * @param {CanvasRenderingContext2D} ctx
   * @param {Chart} chart
   * @param {(Flag & { seconds: number })[]} seen
   * @param {number} y
   */
  labelFlags(ctx, chart, seen, y) {
    const ratio = devicePixelRatio;
    const right = chart.left() + /** @type {uPlot} */ (chart.plot).bbox.width;
    // From this place on flags are at least as grave; words may cover the others.
    const firstAsGrave = (/** @type {Flag} */ flag) => seen.findIndex((other) => rankOfFlag(other) >= rankOfFlag(flag));
    const boxes = seen.map(({ seconds }) => [chart.x(seconds) - 5 * ratio, chart.x(seconds) + 5 * ratio]);
    /** @type {number[][]} */
    const written = [];
    const labelled = new Set();
    ctx.setLineDash([]);
    for (const [place, flag] of [...seen.entries()].reverse()) {
      const { seconds, kind, text } = flag;
      // Where grave ones stand so close that none has room, the first has words over the others.
      const isLastOfKind = seen[place - 1]?.kind !== kind;
      const mayCover = GRAVE_FLAGS.has(kind) && isLastOfKind && !labelled.has(kind);
      const taken = mayCover ? written : [...boxes.slice(firstAsGrave(flag)), ...written];
      const words = kind === 'mark' ? shorten(text, 28) : FLAG_WORDS[/** @type {keyof FLAG_WORDS} */ (kind)] ?? shorten(kind, 12);
      const width = ctx.measureText(words).width + 4 * ratio;
      const x = chart.x(seconds);
      const free = [x + 6 * ratio, x - 6 * ratio - width].find((at) => {
        const isInside = at >= chart.left() && at + width <= right;
        return isInside && taken.every(([from = 0, to = 0]) => at + width < from || at > to);
      });
      if (free === undefined) continue;
      written.push([free, free + width]);
      labelled.add(kind);
      ctx.fillStyle = colours.ground('ground');
      ctx.fillRect(free, y - 6 * ratio, width, 12 * ratio);
      ctx.fillStyle = colours.ground(GRAVE_FLAGS.has(kind) ? 'alert' : 'ink');
      ctx.fillText(words, free, y);
    }
  }
}

/** @param {Flag} flag The graver, the higher. */
function rankOfFlag({ kind }) {
  return FLAG_KINDS.indexOf(kind);
}

/**
 * Thin lines where an outermost phase begins and ends.
 * @param {CanvasRenderingContext2D} ctx
 * @param {Chart} chart
 * @param {number} begin
 * @param {number} end
 */
function drawEdges(ctx, chart, begin, end) {
  const { bbox } = /** @type {uPlot} */ (chart.plot);
  if (chart.x(end) - chart.x(begin) < 6) return;
  ctx.fillStyle = colours.ground('grid');
  for (const at of [begin, end]) {
    ctx.fillRect(Math.round(chart.x(at)), bbox.top, 1, bbox.height);
  }
}

/**
 * Bands in rows in which they do not overlap; what needs more rows is left out.
 * @param {Band[]} bands
 * @returns {PlacedBand[]}
 */
function placed(bands) {
  const known = bands
    .filter((band) => Number.isFinite(band.begin_ns) && Number.isFinite(band.end_ns))
    .map((band) => ({ band, begin: band.begin_ns / NS, end: Math.max(band.begin_ns, band.end_ns) / NS, row: 0 }))
    .sort((one, other) => one.begin - other.begin || other.end - one.end);
  /** @type {number[]} */
  const ends = [];
  return known.filter((one) => {
    const free = ends.findIndex((end) => end <= one.begin);
    one.row = free < 0 ? ends.length : free;
    if (one.row >= MOST_BAND_ROWS) return false;
    ends[one.row] = one.end;
    return true;
  });
}

/**
 * As much of a text as has room.
 * @param {CanvasRenderingContext2D} ctx
 * @param {string} text
 * @param {number} room
 */
function fitting(ctx, text, room) {
  const each = ctx.measureText('n').width;
  let length = Math.max(1, Math.floor(room / each) + 4);
  let words = shorten(text, length);
  while (length > 1 && ctx.measureText(words).width > room) {
    length -= 1;
    words = shorten(text, length);
  }
  // Three letters of a longer name say nothing.
  return words === text || length > 4 ? words : '';
}
