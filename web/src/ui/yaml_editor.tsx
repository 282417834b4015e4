import { useRef, useState } from 'preact/hooks';
import type { Fault } from '../api/client.ts';
import { toast } from './feedback.tsx';

interface Props {
  value: string;
  onChange: (text: string) => void;
  /** Marked at their lines. */
  faults: readonly Fault[];
  field: { current: HTMLTextAreaElement | null };
}

const MOST_BYTES = 1 << 20;

/** With the line ends that a text field gives its text. */
export function withPlainEnds(text: string): string {
  return text.replaceAll(/\r\n?/g, '\n');
}

/** What is dragged otherwise is text, of which the field itself takes care. */
function holdsFile(event: DragEvent): boolean {
  return event.dataTransfer?.types.includes('Files') === true;
}

/** A text field with numbered lines, on which a file can be dropped. */
export function YamlEditor({ value, onChange, faults, field }: Props) {
  const gutter = useRef<HTMLDivElement>(null);
  const [over, setOver] = useState(false);
  const bad = new Map(faults.filter((fault) => fault.line > 0).map((fault) => [fault.line, fault.message]));
  const drop = async (event: DragEvent) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    if (file.size > MOST_BYTES) toast(`${file.name} is too large; 1 MiB is allowed`);
    else onChange(withPlainEnds(await file.text()));
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is one way of several
    <div
      class={`editor ${over ? 'over' : ''}`}
      onDragOver={(event) => {
        if (!holdsFile(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <div class="gutter" ref={gutter} aria-hidden="true">
        {value.split('\n').map((_, i) => (
          <div key={i} class={bad.has(i + 1) ? 'fault' : ''} title={bad.get(i + 1)}>
            {bad.has(i + 1) ? '!' : ''} {i + 1}
          </div>
        ))}
      </div>
      <textarea
        ref={field}
        aria-label="Job file"
        aria-invalid={faults.length > 0}
        value={value}
        spellcheck={false}
        autocapitalize="off"
        onInput={(event) => onChange(event.currentTarget.value)}
        onScroll={(event) => {
          gutter.current!.scrollTop = event.currentTarget.scrollTop;
        }}
      />
    </div>
  );
}
