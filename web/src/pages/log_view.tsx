import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { LogLine } from '../api/types.ts';
import { ms } from '../lib/format.ts';
import { levelOf } from '../lib/log_level.ts';
import { lineName, plain } from '../lib/logs.ts';
import { setQuery } from '../lib/route.ts';

const ROW = 18;
const BEYOND = 30;

interface Props {
  lines: readonly LogLine[];
  jobId: string;
  search: string;
  /** Name of the line that the address points to. */
  chosen: string;
  onChoose: (name: string) => void;
  /** Load what is before and after the lines; null where nothing is. */
  older: (() => void) | null;
  newer: (() => void) | null;
  follow: boolean;
  onUnfollow: () => void;
  manyRanks: boolean;
  /** What is said where there are no lines; empty where it is said elsewhere. */
  none: string;
}

/** Lines of one height, of which those in view are in the document. */
export function LogView(props: Props) {
  const { lines, jobId, search, chosen, onChoose, older, newer, follow, onUnfollow, manyRanks, none } = props;
  const host = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const jumped = useRef('');
  const firstName = useRef('');
  useEffect(() => {
    const element = host.current!;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = host.current!;
    // Lines that were loaded before the others leave in view what was in view.
    const moved = firstName.current ? lines.findIndex((line) => lineName(line) === firstName.current) : 0;
    if (moved > 0) element.scrollTop += moved * ROW;
    firstName.current = lines[0] ? lineName(lines[0]) : '';
    // Others are loaded: the chosen one is looked for among them.
    if (lines.length === 0) jumped.current = '';
    const index = chosen ? lines.findIndex((line) => lineName(line) === chosen) : -1;
    if (index >= 0 && jumped.current !== chosen) {
      jumped.current = chosen;
      element.scrollTop = Math.max(index * ROW - element.clientHeight / 3, 0);
    } else if (follow) element.scrollTop = element.scrollHeight;
  }, [lines, follow, chosen]);
  const first = Math.max(Math.floor(top / ROW) - BEYOND, 0);
  const last = Math.min(Math.ceil((top + height) / ROW) + BEYOND, lines.length);
  const scroll = (element: HTMLDivElement) => {
    if (
      follow &&
      element.scrollTop < top - 2 &&
      element.scrollHeight - element.scrollTop - element.clientHeight > ROW * 2
    ) {
      onUnfollow();
    }
    setTop(element.scrollTop);
  };
  return (
    <>
      <div class="log-head" aria-hidden="true">
        <span class="no">Line</span>
        <span class="at">Time, UTC</span>
        {manyRanks && <span class="rank">Rank</span>}
        <span>What it wrote</span>
      </div>
      <div
        class="log"
        ref={host}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Lines"
        onScroll={(event) => scroll(event.currentTarget)}
      >
        {lines.length === 0 && none && <p class="empty muted">{none}</p>}
        {older && (
          <button type="button" class="small" onClick={older}>
            Older lines
          </button>
        )}
        <div style={{ height: `${lines.length * ROW}px`, position: 'relative' }}>
          {lines.slice(first, last).map((line, i) => {
            const name = lineName(line);
            const text = plain(line.text);
            return (
              <div
                key={name}
                class={`line ${levelOf(text)} ${name === chosen ? 'chosen' : ''}`}
                style={{ top: `${(first + i) * ROW}px` }}
              >
                <a
                  class="no"
                  href={`/jobs/${jobId}/logs?rank=${line.rank}&line=${name}`}
                  title="Link to this line"
                  onClick={(event) => {
                    event.preventDefault();
                    jumped.current = name;
                    onUnfollow();
                    onChoose(name);
                    setQuery({ line: name });
                  }}
                >
                  {line.line_number}
                </a>
                <span class="at">{new Date(ms(line.time_us)).toISOString().slice(11, 23)}</span>
                {manyRanks && <span class="rank">{String(line.rank).padStart(3)}</span>}
                <span>{marked(text, search)}</span>
              </div>
            );
          })}
        </div>
        {newer && (
          <button type="button" class="small" onClick={newer}>
            Newer lines
          </button>
        )}
      </div>
    </>
  );
}

function marked(text: string, search: string) {
  if (!search) return text;
  const at = text.toLowerCase().indexOf(search.toLowerCase());
  if (at < 0) return text;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + search.length)}</mark>
      {text.slice(at + search.length)}
    </>
  );
}
