// The tables of a run: who stands out, roles and ranks over all hosts, ends, hosts, phases.

/**
 * Rows of a list that may have been cut.
 * @param {number} all
 * @param {unknown[]} listed
 */
function cutWords(all, listed) {
  return all > listed.length ? `${count(listed.length)} of ${count(all)} are listed; --top lists more.` : undefined;
}

/**
 * A part with a table that scrolls where it is long.
 * @param {string} id
 * @param {string} title
 * @param {string} caption
 * @param {string[]} titles
 * @param {Child[][]} rows
 * @param {{ csv?: () => Csv, about?: string | undefined }} more
 */
function tableSection(id, title, caption, titles, rows, { csv, about }) {
  if (rows.length === 0) return null;
  const made = section(id, title, { ...(csv ? { csv } : {}), ...(about ? { about } : {}) });
  made.append(el('div', { class: 'wide rows' }, table(caption, titles, rows)));
  return made;
}

/**
 * A list of objects as CSV, a column for each plain value and each time.
 * @param {string} name
 * @param {object[]} list
 * @returns {Csv}
 */
function objectsCsv(name, list) {
  const isTime = (/** @type {any} */ value) => 'wall_ns' in value;
  const isPlain = (/** @type {any} */ value) => value === null || typeof value !== 'object' || isTime(value);
  const value = (/** @type {any} */ one, /** @type {string} */ key) => {
    const own = one[key] ?? null;
    return own !== null && typeof own === 'object' ? own.time : own;
  };
  const columns = Object.keys(list[0] ?? {}).filter((key) => list.every((one) => isPlain(/** @type {any} */ (one)[key] ?? null)));
  return { name, columns, rows: list.map((one) => columns.map((key) => value(one, key))) };
}

/** @param {Outlier} one */
function whoStandsOut({ role, rank, host }) {
  return `${role}${rank === null ? '' : ` ${rank}`} on ${host}`;
}

/** @type {{ [measure: string]: string }} */
const MEASURE_WORDS = { peak: 'the most it held', per_step: 'growth a step', per_hour: 'growth an hour' };

/** @param {Run} run */
function outliersSection({ doc }) {
  const { outliers } = doc.report;
  const most = outliers.map(({ bytes: own, median_bytes: median, threshold_bytes: threshold }) => Math.abs(own - median) / Math.max(1, threshold));
  const top = Math.max(1, ...most);
  return tableSection('outliers', 'Stands out from others that do the same', 'who stands out', ['who', 'in', '>its own', '>median of all', '>difference', '', '>others'],
    outliers.map((one, place) => [
      named(whoStandsOut(one), 60),
      MEASURE_WORDS[one.measure] ?? visible(one.measure),
      bytes(one.bytes),
      bytes(one.median_bytes),
      change(one.bytes - one.median_bytes),
      changeBar(Math.sign(one.bytes - one.median_bytes) * (most[place] ?? 0), top),
      count(one.other_count),
    ]), { csv: () => objectsCsv('outliers', outliers), about: cutWords(doc.counts.outliers, outliers) });
}

/** @param {Run} run */
function rolesSection({ doc }) {
  const { roles, outliers, ranks, rank_count: rankCount } = doc.report;
  const top = Math.max(1, ...roles.map(({ highest_bytes: highest }) => highest ?? 0));
  return tableSection('roles', 'Roles over all hosts', 'the highest sums of anonymous memory of a role on a host', ['role', '>hosts', '>processes', '>at the peak of all', 'lowest, median and highest on a host', '>median', '>highest', 'on', '>grows on'],
    roles.map((role) => [
      named(role.name, 40),
      count(role.host_count),
      count(role.process_count),
      role.at_job_peak_bytes === null ? '' : bytes(role.at_job_peak_bytes),
      spread(role, top, outliers.filter((one) => one.role === role.name && one.rank === null && one.measure === 'peak')),
      bytes(role.median_bytes),
      bytes(role.highest_bytes),
      role.highest_host === null ? '' : named(role.highest_host, 30),
      role.growing_count === 0 ? '' : `${count(role.growing_count)}, by ${bytes(role.bytes_per_hour)}/h`,
    ]), { csv: () => objectsCsv('roles', roles), about: cutWords(doc.counts.roles, roles) ?? (ranks.length < rankCount ? `${count(ranks.length)} of ${count(rankCount)} ranks are listed below.` : undefined) });
}

/**
 * From the lowest to the highest on a host, the median in it, and those that stand out.
 * @param {JobRole} role
 * @param {number} top
 * @param {Outlier[]} outliers
 */
function spread({ lowest_bytes: lowest, median_bytes: median, highest_bytes: highest }, top, outliers) {
  const part = (/** @type {Maybe} */ amount) => `${(100 * (amount ?? 0)) / top}%`;
  const width = `${Math.max(0.5, (100 * ((highest ?? 0) - (lowest ?? 0))) / top)}%`;
  return el('div', { class: 'bar spread', 'aria-hidden': 'true' },
    el('span', { class: 'base', 'style-left': part(lowest), 'style-width': width }),
    el('span', { class: 'peak', 'style-left': part(median) }),
    ...outliers.map((one) => el('span', { class: 'out', title: shorten(whoStandsOut(one), 80), 'style-left': part(one.bytes) })));
}

/** @param {Run} run */
function ranksSection({ doc }) {
  const { ranks, outliers, rank_count: all } = doc.report;
  const top = Math.max(1, ...ranks.map(({ peak_bytes: peak }) => peak ?? 0));
  const stands = new Set(outliers.filter(({ rank }) => rank !== null).map((one) => JSON.stringify([one.role, one.rank, one.host])));
  return tableSection('ranks', 'Ranks over all hosts', 'each rank', ['role', 'rank', 'host', '>pid', '>peak RSS', '', '>a step', '>an hour', 'steps', ''],
    ranks.map((one) => {
      const isOut = stands.has(JSON.stringify([one.role, one.rank, one.host]));
      return [
        named(one.role, 40),
        named(one.rank, 30),
        named(one.host, 40),
        one.pid,
        bytes(one.peak_bytes),
        el('div', { class: 'bar amount-bar', 'aria-hidden': 'true' }, el('span', { class: isOut ? 'near' : 'base', 'style-left': '0', 'style-width': `${(100 * (one.peak_bytes ?? 0)) / top}%` })),
        one.bytes_per_step === null ? '' : change(one.bytes_per_step),
        one.bytes_per_hour === null ? '' : change(one.bytes_per_hour),
        one.stage === null ? '' : named(one.stage, 30),
        isOut && el('span', { class: 'alert unbroken' }, 'stands out'),
      ];
    }), { csv: () => objectsCsv('ranks', ranks), about: cutWords(all, ranks) });
}

/** @param {Run} run */
function endsSection({ doc, curves, clock }) {
  const { ends, end_count: all } = doc.report;
  const when = (/** @type {WallTime | null} */ at) =>
    at === null || at.wall_ns === null || curves.start_unix_ns === null ? '' : clock.wall((at.wall_ns - curves.start_unix_ns) / NS);
  return tableSection('ends', 'Unexpected ends', 'over all hosts, in the order of time', ['when', '>after the first', 'host', 'who', '>pid', 'how', 'limit of'],
    ends.map((one, place) => [
      when(one.at),
      place === 0 || one.after_first_ns === null ? '' : one.is_after_first ? duration(one.after_first_ns / NS, 0.001) : 'same time',
      named(one.host, 40),
      one.is_host ? el('strong', {}, 'all of it') : named(one.name, 40),
      one.pid,
      el('span', { class: one.is_oom_kill || one.is_host ? 'alert' : null }, named(one.how, 60)),
      one.cgroup === null ? '' : named(one.cgroup, 40),
    ]), { csv: () => objectsCsv('ends', ends), about: cutWords(all, ends) });
}

/** @param {Run} run */
function hostsSection({ doc, curves, clock }) {
  const { hosts } = doc.report;
  const when = (/** @type {WallTime | null} */ at) =>
    at === null || at.wall_ns === null || curves.start_unix_ns === null ? '' : clock.wall((at.wall_ns - curves.start_unix_ns) / NS);
  const hasEnds = hosts.some(({ end_count: ends }) => ends > 0);
  return tableSection('hosts', 'Hosts', 'each host', ['host', 'status', '>peak', 'at', '>at the peak of all', '>limit', '>left at its peak', '', '>full in', ...(hasEnds ? ['>ends'] : []), 'largest'],
    hosts.map((line) => {
      const used = line.limit_bytes !== null && line.headroom_bytes !== null ? 1 - line.headroom_bytes / Math.max(1, line.limit_bytes) : null;
      return [
        named(line.host, 40),
        el('span', { class: GRAVE.has(line.status) ? 'alert' : null }, STATUS_WORDS[line.status] ?? visible(line.status)),
        line.status === 'missing' ? '' : bytes(line.peak_bytes),
        el('span', { class: 'unbroken' }, when(line.peak_at).slice(0, -8)),
        line.at_job_peak_bytes === null ? '' : bytes(line.at_job_peak_bytes),
        line.limit_bytes === null ? '' : bytes(line.limit_bytes),
        line.headroom_bytes === null ? '' : bytes(line.headroom_bytes),
        used === null ? '' : el('div', { class: 'bar amount-bar', title: `${share(used, 1)} of the limit in use at its peak` }, el('span', { class: used > 0.9 ? 'near' : 'base', 'style-left': '0', 'style-width': `${Math.min(100, Math.max(0, 100 * used))}%` })),
        line.left_ns === null ? '' : duration(line.left_ns / NS),
        ...(hasEnds ? [line.end_count === 0 ? '' : count(line.end_count)] : []),
        line.largest === null ? '' : named(line.largest, 40),
      ];
    }), { csv: () => objectsCsv('hosts', hosts), about: cutWords(doc.counts.hosts, hosts) });
}

/** @param {Run} run */
function runPhasesSection({ doc }) {
  const { phases } = doc.report;
  return tableSection('phases', 'Phases over all hosts', 'phases by name, the longest first', ['phase', '>count', '>processes', '>hosts', '>mean of the median process', '>mean of the slowest', 'that is', '>longest'],
    phases.map((one) => [
      named(one.name, 60),
      count(one.count),
      count(one.process_count),
      count(one.host_count),
      duration(one.median_mean_ns / NS),
      duration(one.slowest_mean_ns / NS),
      named(`${one.slowest_rank === null ? '' : `rank ${one.slowest_rank} on `}${one.slowest_host}`, 50),
      duration(one.longest_ns / NS),
    ]), { csv: () => objectsCsv('phases', phases), about: cutWords(doc.counts.phases, phases) });
}
