import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, actor, api, type Fault, onSession, setActor } from '../api/client.ts';
import { datasetsState, followDatasets } from '../api/datasets_data.ts';
import { epoch } from '../api/live.ts';
import type { SubmitJobResponse } from '../api/types.ts';
import { ms, num, plural } from '../lib/format.ts';
import { exampleOf } from '../lib/job_example.ts';
import { diffLines } from '../lib/line_diff.ts';
import { current, go } from '../lib/route.ts';
import { useStore } from '../lib/store.ts';
import { Trouble, When } from '../ui/bits.tsx';
import { OtherToken, refusedBy } from '../ui/feedback.tsx';
import { Icon } from '../ui/icons.tsx';
import { Imgcli } from '../ui/imgcli.tsx';
import { useData } from '../ui/use_data.ts';
import { withPlainEnds, YamlEditor } from '../ui/yaml_editor.tsx';
import { SubmitForm } from './submit_form.tsx';

const DRAFT = 'imgd.draft';

/** Writes, checks and submits a job file; with ?rerun=JOB it begins with that one's. */
export function SubmitPage() {
  const { query } = useStore(current);
  const rerun = query.get('rerun') ?? '';
  const before = useData(`rerun ${rerun}`, async (signal) =>
    rerun ? (await api.job(rerun, signal)).job : null,
  );
  if (rerun && !before.data) {
    return before.error ? (
      <Trouble page text={before.error} retry={before.reload} />
    ) : (
      <p class="muted">Loading …</p>
    );
  }
  const original = rerun ? withPlainEnds(before.data?.job_yaml ?? '') : null;
  return <Form key={rerun} rerun={rerun} original={original} />;
}

/** What was written in this tab and not submitted; null for nothing. */
function draft(): string | null {
  try {
    return sessionStorage.getItem(DRAFT);
  } catch {
    return null;
  }
}

/** Why imgd does not take a job. */
interface Rejection {
  faults: Fault[];
  /** Who asks has no right to it. */
  rights: boolean;
}

interface Verdict extends Rejection {
  text: string;
  answer: SubmitJobResponse | null;
}

const NO_FAULTS: Rejection = { faults: [], rights: false };

/** What imgd says of the text as it is: asked a moment after the last key, and anew once imgd is back or has another token. */
function useVerdict(text: string, rerun: string): Verdict | null {
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const again = useStore(epoch);
  const [sessions, setSessions] = useState(0);
  useEffect(() => onSession(() => setSessions((n) => n + 1)), []);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const request = {
          job_yaml: text,
          file_name: 'job.yaml',
          dry_run: true,
          ...(rerun ? { rerun_of: rerun } : {}),
        };
        setVerdict({ text, answer: await api.submit(request, abort.signal), ...NO_FAULTS });
      } catch (error) {
        if (!abort.signal.aborted) setVerdict({ text, answer: null, ...refusedFor(error) });
      }
    }, 350);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, rerun, again, sessions]);
  return verdict;
}

function refusedFor(error: unknown): Rejection {
  const { rights } = refusedBy(error);
  if (error instanceof ApiError) return { faults: error.faults, rights };
  return { faults: [{ message: String(error), line: 0, column: 0, hint: '' }], rights };
}

const newKey = () => crypto.randomUUID?.() ?? `web-${Date.now()}-${Math.random().toString(36).slice(2)}`;

function Form({ rerun, original }: { rerun: string; original: string | null }) {
  useEffect(followDatasets, []);
  const { datasets } = useStore(datasetsState);
  const [written, setWritten] = useState(original ?? draft());
  const text = written ?? exampleOf(datasets[0]?.name);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState(NO_FAULTS);
  const editor = useRef<HTMLTextAreaElement>(null);
  const attempt = useRef({ of: '', key: '' });
  const verdict = useVerdict(text, rerun);
  const current = verdict?.text === text ? verdict : null;
  const { faults, rights } = refused.faults.length > 0 ? refused : (verdict ?? NO_FAULTS);
  const change = (next: string) => {
    setWritten(next);
    setRefused(NO_FAULTS);
    if (original !== null) return;
    try {
      sessionStorage.setItem(DRAFT, next);
    } catch {
      // Then the draft goes with the page.
    }
  };
  /** The same for who tries again, where it is not known whether imgd has the job already. */
  const keyFor = (of: string) => {
    if (attempt.current.of !== of) attempt.current = { of, key: newKey() };
    return attempt.current.key;
  };
  const submit = async () => {
    setBusy(true);
    try {
      const answer = await api.submit({
        job_yaml: text,
        file_name: 'job.yaml',
        dry_run: false,
        idempotency_key: keyFor(JSON.stringify([text, actor(), rerun])),
        ...(rerun ? { rerun_of: rerun } : {}),
      });
      attempt.current = { of: '', key: '' };
      go(`/jobs/${answer.job.id}`);
    } catch (error) {
      setRefused(refusedFor(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>{rerun ? `Rerun job ${rerun}` : 'Submit a job'}</h1>
        <span class="sub">paste a job file, drop one on the editor, or fill in the fields</span>
        <span class="grow" />
        <label class="inline">
          Owner
          <input
            type="text"
            size={12}
            defaultValue={actor()}
            onChange={(event) => setActor(event.currentTarget.value)}
            title="Whose job it is: whose turn and quota it counts for. This browser keeps the name"
          />
        </label>
        <button type="button" class="primary" disabled={busy || !current?.answer} onClick={submit}>
          {busy ? 'Submitting …' : 'Submit'}
        </button>
      </div>
      <div class="split">
        <YamlEditor value={text} onChange={change} faults={faults} field={editor} />
        <div class="stack">
          <section class="panel" aria-live="polite" aria-label="What imgd says">
            <header>
              <h2>What imgd says</h2>
            </header>
            <div class="body">
              {faults.length > 0 ? <Faults faults={faults} editor={editor} /> : <Answer verdict={current} />}
              {rights && <OtherToken />}
            </div>
          </section>
          <SubmitForm text={text} onChange={change} />
          {original !== null && original !== text && <Changes before={original} after={text} />}
          <section class="panel">
            <div class="body stack">
              <span class="muted">The same from a terminal</span>
              <Imgcli
                of={(imgcli) =>
                  `${imgcli} ${rerun ? `rerun ${rerun} --set KEY=VALUE` : 'submit job.yaml --watch'}`
                }
              />
            </div>
          </section>
        </div>
      </div>
    </>
  );
}

function Faults({
  faults,
  editor,
}: {
  faults: readonly Fault[];
  editor: { current: HTMLTextAreaElement | null };
}) {
  const show = (fault: Fault) => {
    const field = editor.current!;
    const lines = field.value.split('\n');
    const start = lines.slice(0, fault.line - 1).reduce((sum, line) => sum + line.length + 1, 0);
    field.focus();
    field.setSelectionRange(
      start + Math.max(fault.column - 1, 0),
      start + (lines[fault.line - 1]?.length ?? 0),
    );
    field.scrollTop = Math.max((fault.line - 6) * 20, 0);
  };
  return (
    <ul class="faults">
      {faults.map((fault) => (
        <li key={`${fault.line} ${fault.message}`}>
          <span class="bad">
            <Icon name="failed" />{' '}
          </span>
          {fault.line > 0 && (
            <button type="button" onClick={() => show(fault)}>
              Line {fault.line}
            </button>
          )}{' '}
          {fault.line > 0 ? fault.message.replace(/^job\.yaml:\d+:(\d+: )?/, '') : fault.message}
          {fault.hint && <div class="muted">{fault.hint}</div>}
        </li>
      ))}
    </ul>
  );
}

function Answer({ verdict }: { verdict: Verdict | null }) {
  const job = verdict?.answer?.job;
  if (!verdict?.answer || !job) return <p class="muted">Checking …</p>;
  const start = ms(job.expected_start_us);
  const { sweep, warnings } = verdict.answer;
  return (
    <div class="stack">
      <span class="state tone-ok">
        <Icon name="completed" /> The file is good
      </span>
      <dl class="pairs">
        <dt>Name</dt>
        <dd>{job.name}</dd>
        <dt>Needs</dt>
        <dd>
          {plural(job.nodes, 'node')} with {plural(job.ranks_per_node, 'rank')} each
        </dd>
        {sweep && num(sweep.members) > 0 && <dt>Sweep</dt>}
        {sweep && num(sweep.members) > 0 && <dd>{plural(sweep.members, 'job')}</dd>}
        <dt>Would start</dt>
        <dd>
          {Number.isFinite(start) ? <When at={start} forecast /> : job.reason_text || 'nobody knows when'}
        </dd>
      </dl>
      {warnings.map((warning) => (
        <p key={warning} class="warn">
          <Icon name="warning" /> {warning}
        </p>
      ))}
    </div>
  );
}

function Changes({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => diffLines(before.split('\n'), after.split('\n')), [before, after]);
  const near = lines.filter(
    (line, i) =>
      line.kind !== 'same' || lines.slice(Math.max(i - 2, 0), i + 3).some((one) => one.kind !== 'same'),
  );
  return (
    <section class="panel">
      <header>
        <h2>What you changed</h2>
      </header>
      <section class="diff" tabIndex={0} aria-label="Changes">
        {near.map((line, i) => (
          <div key={i} class={line.kind}>
            {{ same: '  ', added: '+ ', removed: '- ' }[line.kind]}
            {line.text}
          </div>
        ))}
      </section>
    </section>
  );
}
