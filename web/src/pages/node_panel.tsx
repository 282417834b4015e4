import { api } from '../api/client.ts';
import { useCurrency } from '../api/currency.ts';
import { dropNode, takeNodes, useStoryOf } from '../api/nodes_data.ts';
import type { Decision, Node, NodeRun } from '../api/types.ts';
import { ms, price, relative, words } from '../lib/format.ts';
import { conditionOf, isConnected, labelsOf } from '../lib/nodes.ts';
import { Clock, When } from '../ui/bits.tsx';
import { ask, attempt } from '../ui/feedback.tsx';
import { Icon } from '../ui/icons.tsx';
import { DevicesTable } from './gpus.tsx';
import type { NameOf } from './nodes.tsx';

/** Drain, and what undoes it. */
export function NodeActions({ node, plain = '' }: { node: Node; plain?: string }) {
  const aside = node.set_aside;
  const drain = async () => {
    const answer = await ask({
      title: `Drain ${node.name}?`,
      text: 'Nothing new is placed there, and what runs there is ended through a checkpoint and goes on elsewhere.',
      confirm: 'Drain it',
      input: { label: 'Why, for those whose jobs wait for it', value: '' },
      option: { label: 'Let what runs there go on (cordon)', value: false },
    });
    if (!answer) return;
    await attempt(`${node.name} is ${answer.option ? 'cordoned' : 'being drained'}`, async () => {
      takeNodes([(await api.setAside(node.name, !answer.option, answer.text)).node]);
    });
  };
  const giveBack = () =>
    attempt(`${node.name} is used again`, async () => {
      takeNodes([(await api.returnNode(node.name, aside!.drain)).node]);
    });
  return aside ? (
    <button
      type="button"
      class="small"
      onClick={giveBack}
      aria-label={`${aside.drain ? 'Undrain' : 'Uncordon'} ${node.name}`}
    >
      {aside.drain ? 'Undrain' : 'Uncordon'}
    </button>
  ) : (
    <button type="button" class={`small ${plain}`} onClick={drain} aria-label={`Drain … ${node.name}`}>
      Drain …
    </button>
  );
}

/** Takes a lost node out of the list. */
function Forget({ node }: { node: Node }) {
  const forget = async () => {
    const answer = await ask({
      title: `Forget ${node.name}?`,
      text: 'The runs that were on it stay known. If its agent comes back, it joins as a new node.',
      confirm: 'Forget it',
    });
    if (!answer) return;
    await attempt(`${node.name} is forgotten`, async () => {
      await api.forgetNode(node.name);
      dropNode(node.name);
    });
  };
  return (
    <button type="button" class="small" onClick={forget} aria-label={`Forget … ${node.name}`}>
      Forget …
    </button>
  );
}

/** All about one node, above the others. */
export function NodePanel({ node, names }: { node: Node; names: NameOf }) {
  const story = useStoryOf(node.name);
  const condition = conditionOf(node);
  return (
    <section class="panel" aria-label={node.name} style={{ marginBottom: '14px' }}>
      <header>
        <h2>{node.name}</h2>
        <span class={`state tone-${condition.tone}`}>
          <Icon name={condition.icon} />
          {condition.word}
        </span>
        <span class="muted">{condition.why}</span>
        <span class="grow" />
        {node.state === 'NODE_STATE_LOST' && <Forget node={node} />}
        <NodeActions node={node} />
        <a class="button" href="/nodes" aria-label="Close">
          <Icon name="close" />
        </a>
      </header>
      <dl class="body pairs">
        <Facts node={node} />
      </dl>
      <DevicesTable nodes={[node]} names={names} />
      {story && story.runs.length > 0 && <Runs node={node.name} runs={story.runs} />}
      {story && story.events.length > 0 && <Events node={node.name} events={story.events} />}
    </section>
  );
}

function Runs({ node, runs }: { node: string; runs: readonly NodeRun[] }) {
  return (
    <section class="scroll" tabIndex={0} aria-label={`Runs on ${node}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Run</th>
            <th scope="col">Began</th>
            <th scope="col">How it ended</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={`${run.job_id}.${run.generation}`}>
              <td>
                <a class="in-text" href={`/jobs/${run.job_id}`}>
                  {run.job_id} {run.job_name}
                </a>{' '}
                <span class="muted">start {run.generation}</span>
              </td>
              <td>
                <Clock at={ms(run.started_us)} />
              </td>
              <td>{run.ended_text || <span class="muted">runs</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** What was decided of it and of what ran there, when and by whom. */
function Events({ node, events }: { node: string; events: readonly Decision[] }) {
  return (
    <section class="scroll" tabIndex={0} aria-label={`Events of ${node}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Event</th>
            <th scope="col">By</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <tr key={event.number}>
              <td>
                <Clock at={ms(event.time_us)} />
              </td>
              <td>{event.text || words(event.reason.replace('REASON_CODE_', ''))}</td>
              <td>{event.actor}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Facts({ node }: { node: Node }) {
  const aside = node.set_aside;
  const currency = useCurrency();
  // Of a node that is connected only changes are told: the time would be that of the last one.
  const heard = (
    <>
      heard <When at={ms(node.last_heartbeat_us)} />
    </>
  );
  const labels = labelsOf(node).map(([key, value]) => `${key}=${value}`);
  return (
    <>
      <dt>Address</dt>
      <dd>{node.address}</dd>
      <dt>Agent</dt>
      <dd>
        {node.agent_version}, {isConnected(node) ? 'connected' : heard}, joined{' '}
        <Clock at={ms(node.joined_us)} />
      </dd>
      {labels.length > 0 && <dt>Labels</dt>}
      {labels.length > 0 && <dd>{labels.join(', ')}</dd>}
      {node.price_per_hour > 0 && <dt>Price</dt>}
      {node.price_per_hour > 0 && <dd>{price(node.price_per_hour, currency)} an hour</dd>}
      {aside && <dt>Set aside</dt>}
      {aside && (
        <dd>
          by {aside.by_imgd ? 'imgd' : aside.actor || 'somebody'}, <When at={ms(aside.since_us)} />
          {aside.reason && `: ${aside.reason}`}
        </dd>
      )}
      {node.notice && <dt>Spot notice</dt>}
      {node.notice && (
        <dd class="warn">
          {node.notice.action || 'taken back'}{' '}
          {Number.isFinite(ms(node.notice.at_us)) ? relative(ms(node.notice.at_us), Date.now()) : 'soon'}
        </dd>
      )}
      {node.problems.map((problem) => (
        <>
          <dt>{words(problem.kind.replace('PROBLEM_KIND_', ''))}</dt>
          <dd class="bad">it {problem.text}</dd>
        </>
      ))}
    </>
  );
}
