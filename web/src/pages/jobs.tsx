import { useEffect, useMemo, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import { followJobs, jobsState } from '../api/jobs_data.ts';
import { JOB_STATES, type ShortState } from '../api/types.ts';
import { MOST_COMPARED } from '../lib/compare.ts';
import { count, plural, words } from '../lib/format.ts';
import {
  countStates,
  filterJobs,
  isOver,
  type JobRow,
  SORT_KEYS,
  type SortKey,
  sortJobs,
} from '../lib/jobs.ts';
import { current, setQuery, useQueryText } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Empty, Menu, Trouble } from '../ui/bits.tsx';
import { ask, attempt, toast } from '../ui/feedback.tsx';
import { Icon } from '../ui/icons.tsx';
import { Imgcli } from '../ui/imgcli.tsx';
import { COLUMNS, defaultColumns } from './jobs_columns.tsx';
import { JobsTable } from './jobs_table.tsx';

// Only what submits asks imgd.
const example = (imgcli: string) => `imgcli recipes
${imgcli} submit recipe:rn18-2gpu --watch \\
  --set data.train=dataset:NAME/train --set data.val=dataset:NAME/val`;

/** What the address says of the table. */
function viewOf(query: URLSearchParams, costs: boolean) {
  const list = (name: string) => (query.get(name) ?? '').split(',').filter(Boolean);
  const sortText = query.get('sort') ?? 'state';
  const key = sortText.replace(/^-/, '') as SortKey;
  const columns = list('cols');
  return {
    states: new Set(list('state').map((state) => state.toUpperCase())) as Set<ShortState>,
    owner: query.get('owner') ?? '',
    text: query.get('q') ?? '',
    sort: SORT_KEYS.includes(key) ? key : 'state',
    descending: sortText.startsWith('-'),
    columns: columns.length > 0 ? columns : defaultColumns(costs),
    costs,
  };
}

export function JobsPage() {
  useEffect(followJobs, []);
  const state = useStore(jobsState);
  const { query } = useStore(current);
  const costs = useMemo(() => state.rows.some((row) => row.cost > 0), [state.rows]);
  const view = useMemo(() => viewOf(query, costs), [query, costs]);
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const filtered = useMemo(() => filterJobs(state.rows, view), [state.rows, view]);
  const rows = useMemo(() => sortJobs(filtered, view.sort, view.descending), [filtered, view]);
  const columns = COLUMNS.filter((column) => view.columns.includes(column.key));

  const choose = (id: number) => {
    setChosen((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  };
  const sortBy = (key: SortKey) => {
    // Figures begin with the largest.
    const descending =
      key === view.sort ? !view.descending : !['state', 'name', 'owner', 'eta', 'age'].includes(key);
    setQuery({ sort: key === 'state' && !descending ? '' : `${descending ? '-' : ''}${key}` });
  };

  if (!state.ready) {
    return (
      <>
        <h1 tabIndex={-1}>Jobs</h1>
        {state.error ? <Trouble text={state.error} /> : <p class="muted">Loading …</p>}
      </>
    );
  }
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Jobs</h1>
        <span class="sub" aria-live="polite">
          {rows.length === state.rows.length
            ? count(rows.length)
            : `${count(rows.length)} of ${count(state.rows.length)}`}
          {state.loading && ' · loading the rest …'}
          {state.error && ` · not all: ${state.error}`}
        </span>
      </div>
      {state.rows.length === 0 && !state.loading ? (
        <div class="panel">
          <Empty
            title="No jobs yet"
            text="A job is one YAML file: what to train, on which images, on how many GPUs. Submit one here, or a recipe from a terminal, with the name of a registered data set for NAME:"
          >
            <Imgcli of={example} />
            <a class="button primary" href="/submit">
              Write a job file
            </a>
          </Empty>
        </div>
      ) : (
        <>
          <Filters rows={state.rows} view={view} />
          {rows.length === 0 ? (
            <div class="panel">
              <Empty title="No job is like that" text="No job has all of what the filters ask for.">
                <button type="button" onClick={() => setQuery({ state: '', owner: '', q: '' })}>
                  Clear the filters
                </button>
              </Empty>
            </div>
          ) : (
            <JobsTable
              rows={rows}
              columns={columns}
              sort={view.sort}
              descending={view.descending}
              onSort={sortBy}
              chosen={chosen}
              onChoose={choose}
            />
          )}
          {chosen.size > 0 && (
            <Selection
              rows={state.rows.filter((row) => chosen.has(row.id))}
              clear={() => setChosen(new Set())}
            />
          )}
        </>
      )}
    </>
  );
}

type View = ReturnType<typeof viewOf>;

function Filters({ rows, view }: { rows: readonly JobRow[]; view: View }) {
  const [text, setText] = useQueryText('q');
  const counts = useMemo(() => countStates(rows), [rows]);
  const owners = useMemo(() => [...new Set(rows.map((row) => row.owner))].filter(Boolean).sort(), [rows]);
  const toggle = (state: ShortState) => {
    const next = new Set(view.states);
    if (!next.delete(state)) next.add(state);
    setQuery({ state: [...next].map((one) => one.toLowerCase()).join(',') }, true);
  };
  const toggleColumn = (key: string) => {
    const next = COLUMNS.map((column) => column.key).filter(
      (one) => (one === key) !== view.columns.includes(one),
    );
    setQuery({ cols: next.join(',') === defaultColumns(view.costs).join(',') ? '' : next.join(',') });
  };
  return (
    <div class="row filters">
      <input
        type="search"
        placeholder="Search name, owner, node, reason   /"
        aria-label="Search jobs"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        size={34}
      />
      <div class="chips" role="group" aria-label="States">
        {JOB_STATES.filter((state) => counts.has(state) || view.states.has(state)).map((state) => (
          <button
            type="button"
            key={state}
            aria-pressed={view.states.has(state)}
            onClick={() => toggle(state)}
          >
            <Icon name={words(state)} /> {words(state)} <b>{count(counts.get(state) ?? 0)}</b>
          </button>
        ))}
      </div>
      <span class="grow" />
      <select
        aria-label="Owner"
        value={view.owner}
        onChange={(event) => setQuery({ owner: event.currentTarget.value }, true)}
      >
        <option value="">All owners</option>
        {owners.map((owner) => (
          <option key={owner}>{owner}</option>
        ))}
      </select>
      <Menu
        label={
          <>
            <Icon name="columns" /> Columns
          </>
        }
      >
        {COLUMNS.filter((column) => column.key !== 'name').map((column) => (
          <label class="inline" key={column.key}>
            <input
              type="checkbox"
              checked={view.columns.includes(column.key)}
              onChange={() => toggleColumn(column.key)}
            />
            {column.title}
          </label>
        ))}
      </Menu>
    </div>
  );
}

/** What can be done with the chosen jobs. */
function Selection({ rows, clear }: { rows: readonly JobRow[]; clear: () => void }) {
  const live = rows.filter((row) => !isOver(row.state) && !row.job.external);
  const ids = rows.map((row) => row.id).sort((a, b) => a - b);
  const cancel = async () => {
    const answer = await ask({
      title: `Cancel ${plural(live.length, 'job')}?`,
      text: live.map((row) => `${row.id} ${row.name}`).join(', '),
      confirm: 'Cancel them',
      option: { label: 'Save checkpoints first', value: false },
      danger: true,
    });
    if (!answer) return;
    const done = await attempt('', async () => {
      const ends = await Promise.allSettled(live.map((row) => api.cancel(String(row.id), answer.option)));
      const refused = ends.filter((end) => end.status === 'rejected');
      const cancelled = ends.length - refused.length;
      if (cancelled > 0) toast(`${plural(cancelled, 'job')} cancelled`);
      if (refused[0]) throw refused[0].reason;
    });
    if (done) clear();
  };
  return (
    <div class="selection" role="region" aria-label="Chosen jobs">
      <b>{plural(rows.length, 'job')}</b>
      {rows.length >= 2 && rows.length <= MOST_COMPARED ? (
        <a class="button" href={`/compare?jobs=${ids.join(',')}`}>
          Compare
        </a>
      ) : (
        <span class="muted">
          {rows.length < 2 ? 'choose another to compare' : `at most ${MOST_COMPARED} can be compared`}
        </span>
      )}
      <button type="button" class="danger" disabled={live.length === 0} onClick={cancel}>
        Cancel …
      </button>
      <button type="button" class="plain icon" aria-label="Choose none" onClick={clear}>
        <Icon name="close" />
      </button>
    </div>
  );
}
