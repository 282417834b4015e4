import { useEffect } from 'preact/hooks';
import { followNodes, nodesState, recentBusy } from '../api/nodes_data.ts';
import type { Job } from '../api/types.ts';
import { bytes, clock, count, hours, millis, ms, num, percent, plural } from '../lib/format.ts';
import { deviceHours, holdsDevices } from '../lib/jobs.ts';
import { busyCurve, busyOf, nodePath } from '../lib/nodes.ts';
import { type StepStages, stagesOf } from '../lib/stages.ts';
import { useStore } from '../lib/store.ts';
import { Meter, now, Spark } from '../ui/bits.tsx';

/** Beside the curves: where the time of a step goes, how the ranks differ, where they are. */
export function JobSide({ job }: { job: Job }) {
  const stages = job.last_step ? stagesOf(job.last_step) : null;
  return (
    <div class="stack">
      {stages && <Stages stages={stages} />}
      {job.last_step?.ranks && <Ranks job={job} />}
      <Busy job={job} />
      <Places job={job} />
      <About job={job} />
    </div>
  );
}

function Stages({ stages: { seconds, parts } }: { stages: StepStages }) {
  return (
    <section class="panel">
      <header>
        <h2>Where a step’s time goes</h2>
        <span class="grow" />
        <span class="muted">{millis(seconds)}</span>
      </header>
      <div class="body">
        <div class="stages" aria-hidden="true">
          {parts.map((part) => (
            <i key={part.name} class={part.fill} style={{ width: `${part.share * 100}%` }} />
          ))}
        </div>
        <table>
          <caption class="hidden">Time of a step by stage, of rank 0</caption>
          <tbody>
            {parts.map((part) => (
              <tr key={part.name}>
                <th scope="row">
                  <span class="row">
                    <i class={`swatch ${part.fill}`} />
                    {part.name}
                  </span>
                </th>
                <td class="num">{millis(part.seconds)}</td>
                <td class="num muted">{percent(part.share, 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Ranks({ job }: { job: Job }) {
  const spread = job.last_step!.ranks!;
  const most = spread.own_most_seconds || 1;
  const late = spread.own_most_seconds / (spread.own_mean_seconds || 1) - 1;
  const rows: [string, number][] = [
    ['Fastest', spread.own_least_seconds],
    ['Mean', spread.own_mean_seconds],
    [`Slowest, rank ${spread.slowest_rank}`, spread.own_most_seconds],
  ];
  return (
    <section class="panel">
      <header>
        <h2>Own work of {plural(spread.ranks, 'rank')}</h2>
        <span class="grow" />
        {late > 0.15 && (
          <span class="badge warn">
            rank {spread.slowest_rank} is {percent(late, 0)} slower
          </span>
        )}
      </header>
      <div class="body">
        <table>
          <caption class="hidden">Own work of the ranks in a step</caption>
          <tbody>
            {rows.map(([name, seconds]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  <Meter
                    share={seconds / most}
                    width={80}
                    tone={late > 0.15 && name.startsWith('Slowest') ? 'full' : ''}
                  />
                </td>
                <td class="num">{millis(seconds)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** How busy its devices are, where agents can read that, and were while a page of this tab was open. */
function Busy({ job }: { job: Job }) {
  useEffect(followNodes, []);
  const { nodes } = useStore(nodesState);
  const time = useStore(now);
  const held = nodes
    .map((node) => ({
      node,
      at: node.devices.flatMap((one, i) =>
        one.job_id === job.id && Number.isFinite(busyOf(node, one)) ? [i] : [],
      ),
    }))
    .filter(({ at }) => at.length > 0);
  if (held.length === 0) return null;
  const of = (part: typeof held) =>
    busyCurve(
      recentBusy,
      part.flatMap(({ node, at }) => at.map((i) => ({ node: node.name, at: i }))),
      time,
    );
  const share = ({ node, at }: (typeof held)[number]) =>
    at.reduce((sum, i) => sum + busyOf(node, node.devices[i]!), 0) / at.length;
  return (
    <section class="panel">
      <header>
        <h2>Busy GPUs</h2>
        <span class="grow" />
        <Spark values={of(held)} least={0} most={1} width={90} label="Busy GPUs of late" />
      </header>
      <div class="body">
        <table>
          <caption class="hidden">How busy the job’s GPUs are</caption>
          <tbody>
            {held.slice(0, MOST_NODES).map((one) => (
              <tr key={one.node.name}>
                <th scope="row">{one.node.name}</th>
                <td>
                  <Meter share={share(one)} width={80} />
                </td>
                <td class="num">{percent(share(one), 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const MOST_NODES = 16;

function Places({ job }: { job: Job }) {
  if (job.placements.length === 0 && !job.external) return null;
  return (
    <section class="panel">
      <header>
        <h2>{holdsDevices(job) ? 'Where its ranks are' : 'Where its ranks were last'}</h2>
      </header>
      <div class="body">
        {job.external ? (
          job.external.hosts.join(', ')
        ) : (
          <table>
            <caption class="hidden">Ranks by node</caption>
            <tbody>
              {job.placements.map((place) => (
                <tr key={place.node}>
                  <th scope="row">
                    <a href={nodePath(place.node)}>{place.node}</a>
                  </th>
                  <td class="num">
                    <a href={`/jobs/${job.id}/logs?rank=${place.first_rank}`}>
                      {rankText(place.first_rank, place.ranks || place.devices.length)}
                    </a>
                  </td>
                  <td class="num muted">
                    {place.devices.length === 1 ? 'device' : 'devices'} {place.devices.join(' ')}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
    </section>
  );
}

function rankText(first: number, ranks: number): string {
  return ranks <= 1 ? `rank ${first}` : `ranks ${first} to ${first + ranks - 1}`;
}

function About({ job }: { job: Job }) {
  const saved = job.last_checkpoint;
  const pairs: [string, string | undefined][] = [
    ['Owner', job.owner],
    ['Project', job.project || undefined],
    ['Submitted', clock(ms(job.submitted_us), Date.now())],
    ['Started', num(job.started_us) > 0 ? clock(ms(job.started_us), Date.now()) : undefined],
    ['Ended', num(job.ended_us) > 0 ? clock(ms(job.ended_us), Date.now()) : undefined],
    ['Restarts', String(job.restarts)],
    ['Device-hours', hours(deviceHours(job, Date.now()))],
    ['Checkpoint', saved ? `step ${count(saved.step)}, ${bytes(saved.size_bytes)}` : undefined],
    ['Folder', job.checkpoint_dir || undefined],
    ['Comes after', job.after.map((one) => `${one.job_id} ${one.job_name}`).join(', ') || undefined],
    ['Sweep', job.sweep_settings.map((one) => `${one.name} ${one.value}`).join(', ') || undefined],
  ];
  return (
    <section class="panel">
      <header>
        <h2>About it</h2>
      </header>
      <dl class="body pairs">
        {pairs.map(([name, value]) =>
          value === undefined ? null : (
            <>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </>
          ),
        )}
      </dl>
    </section>
  );
}
