import { useEffect, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import { datasetsState, followDatasets } from '../api/datasets_data.ts';
import type {
  Dataset,
  DatasetContents,
  DatasetFinding,
  DatasetPart,
  DatasetVerification,
} from '../api/types.ts';
import { verifiedText } from '../lib/datasets.ts';
import { count, ms, NONE, num, plural } from '../lib/format.ts';
import { useStore } from '../lib/store.ts';
import { Command, Empty, Meter, TableHeader, Trouble, When } from '../ui/bits.tsx';
import { Imgcli } from '../ui/imgcli.tsx';
import { useData } from '../ui/use_data.ts';
import { Condition, Conversion } from './dataset_state.tsx';

const FIRST_CLASSES = 50;
const FIRST_FINDINGS = 10;

/** One set: what it holds, some of its images, what verifying it found, and how far it is where it is being made. */
export function DatasetPage({ name }: { name: string }) {
  useEffect(followDatasets, []);
  const { datasets, ready } = useStore(datasetsState);
  const live = datasets.find((set) => set.name === name);
  const seen = live ? `${live.described_us} ${live.verified_us} ${live.address}` : '';
  const { data, error, status, reload } = useData(`dataset ${name} ${seen}`, (signal) =>
    api.dataset(name, signal),
  );
  const [kept, setKept] = useState(data);
  // What was there stays until the next has come.
  if (data && data !== kept) setKept(data);
  if (status === 404 || (ready && !live && !data))
    return (
      <Empty
        page
        title={`There is no data set ${name}`}
        text="It was taken away, or its conversion did not end well."
      >
        <a class="button" href="/datasets">
          Data sets
        </a>
      </Empty>
    );
  const shown = data ?? (kept?.dataset.name === name ? kept : null);
  if (!shown) return error ? <Trouble page text={error} retry={reload} /> : <p class="muted">Loading …</p>;
  const set = live ?? shown.dataset;
  const { contents, verification } = shown.facts;
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>{name}</h1>
        <span class="sub mono">{set.address}</span>
        <span class="grow" />
        <a class="button" href="/datasets">
          All data sets
        </a>
      </div>
      <div class="stack">
        <Facts set={set} />
        {set.progress && <Conversion progress={set.progress} />}
        <Verification set={set} found={verification} />
        <Samples set={set} contents={contents} />
        {contents?.parts.map((part) => (
          <Classes key={part.name} part={part} />
        ))}
        {contents && num(contents.left_out) > 0 && (
          <Findings
            title="Left out when it was converted"
            list={contents.left_out_images}
            all={num(contents.left_out)}
          />
        )}
        <div class="row muted">
          In a job file: <Command text={`data: {train: dataset:${name}/train, val: dataset:${name}/val}`} />
        </div>
      </div>
    </>
  );
}

function Facts({ set }: { set: Dataset }) {
  const known = num(set.images) > 0;
  return (
    <dl class="facts panel">
      <div>
        <dt>Images</dt>
        <dd>{known ? count(set.images) : NONE}</dd>
      </div>
      <div>
        <dt>Classes</dt>
        <dd>{set.classes > 0 ? count(set.classes) : NONE}</dd>
      </div>
      <div>
        <dt>State</dt>
        <dd>
          <Condition set={set} />
        </dd>
      </div>
      <div>
        <dt>Owner</dt>
        <dd>{set.owner}</dd>
      </div>
      <div>
        <dt>Registered</dt>
        <dd>
          <When at={ms(set.registered_us)} />
        </dd>
      </div>
    </dl>
  );
}

function Verification({ set, found }: { set: Dataset; found: DatasetVerification | undefined }) {
  if (!found)
    return (
      <section class="panel" aria-label="Verification">
        <header>
          <h2>Verification</h2>
        </header>
        <div class="body">
          <p>
            {num(set.made_by) > 0
              ? 'Never verified: it is still being made.'
              : 'Never verified: nobody has told imgd whether it is whole. Where its files can be seen:'}
          </p>
          {num(set.made_by) === 0 && (
            <Imgcli of={(imgcli) => `${imgcli} dataset verify --decode dataset:${set.name}`} />
          )}
        </div>
      </section>
    );
  const good = num(found.broken) === 0;
  return (
    <section class="panel" aria-label="Verification">
      <header>
        <h2>Verification</h2>
        <span class="muted">
          <When at={ms(found.time_us)} /> by {found.told_by}, version {found.version}
        </span>
      </header>
      <div class="body">
        <p>
          <strong class={good ? 'tone-ok' : 'tone-bad'}>
            {good ? '✓ nothing is broken' : `✗ ${plural(num(found.broken), 'fault')}`}
          </strong>
          : {verifiedText(found)}
          {num(found.doubtful) > 0 && `; ${count(found.doubtful)} decode with warnings, which is no fault`}
        </p>
      </div>
      {found.findings.length > 0 && <FindingsTable list={found.findings} all={num(found.broken)} />}
    </section>
  );
}

function Findings({ title, list, all }: { title: string; list: readonly DatasetFinding[]; all: number }) {
  return (
    <section class="panel scroll" tabIndex={0} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span class="muted">{count(all)}</span>
      </header>
      <FindingsTable list={list} all={all} />
    </section>
  );
}

function FindingsTable({ list, all }: { list: readonly DatasetFinding[]; all: number }) {
  const [open, setOpen] = useState(false);
  const shown = open ? list : list.slice(0, FIRST_FINDINGS);
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Where</th>
          <th scope="col">What is wrong</th>
        </tr>
      </thead>
      <tbody>
        {shown.map((one, i) => (
          <tr key={`${i} ${one.place}`}>
            <td class="mono">{one.place}</td>
            <td>{one.reason}</td>
          </tr>
        ))}
        {all > shown.length && (
          <tr>
            <td colSpan={2} class="muted">
              and {count(all - shown.length)} more{' '}
              {shown.length < list.length && (
                <button type="button" class="small" onClick={() => setOpen(true)}>
                  Show {all > list.length ? `the first ${count(list.length)}` : 'all'}
                </button>
              )}
            </td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

function Samples({ set, contents }: { set: Dataset; contents: DatasetContents | undefined }) {
  if (!contents || contents.samples.length === 0)
    return (
      <div class="panel">
        <Empty
          title="No sample images"
          text="They come from who sees the files: the conversion that makes a set, imgcli dataset register without --no-check, or verify."
        />
      </div>
    );
  const samples = contents.samples.map((one, number) => ({ ...one, number }));
  return (
    <section class="panel" aria-label="Sample images">
      <header>
        <h2>Sample images</h2>
        <span class="muted">
          {count(samples.length)}, as told <When at={ms(contents.time_us)} /> by {contents.told_by}
        </span>
      </header>
      {contents.parts.map(({ name }) => (
        <div key={name}>
          {name && <h3 class="samples-title">{name}</h3>}
          <ul class="samples">
            {samples
              .filter((one) => one.part === name)
              .map((one) => (
                <li key={one.number}>
                  <img
                    src={api.datasetSampleAddress(set.name, contents.time_us, one.number)}
                    alt={`${one.name}: ${one.class_name}`}
                    loading="lazy"
                    width="96"
                    height="96"
                  />
                  <span title={one.name}>{one.class_name}</span>
                  <span class="muted">label {one.label}</span>
                </li>
              ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

function Classes({ part }: { part: DatasetPart }) {
  const [all, setAll] = useState(false);
  const rows = part.classes.map((one, label) => ({ ...one, label }));
  const most = Math.max(1, ...rows.map((row) => num(row.images)));
  const shown = all ? rows : rows.slice(0, FIRST_CLASSES);
  const title = part.name ? `Classes of ${part.name}` : 'Classes';
  return (
    <section class="panel scroll" tabIndex={0} aria-label={title}>
      <TableHeader title={title} more={shown.length < rows.length} showAll={() => setAll(true)}>
        {count(part.class_count)}, {plural(num(part.images), 'image')}
        {part.class_count > rows.length && `; the first ${count(rows.length)} are kept`}
      </TableHeader>
      <table>
        <thead>
          <tr>
            <th scope="col" class="num">
              Label
            </th>
            <th scope="col">Class</th>
            <th scope="col">
              <span class="hidden">Images as a bar</span>
            </th>
            <th scope="col" class="num">
              Images
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={row.label}>
              <td class="num">{row.label}</td>
              <th scope="row">{row.name}</th>
              <td>
                <Meter share={num(row.images) / most} width={120} />
              </td>
              <td class="num">{count(row.images)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
