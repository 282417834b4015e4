const SOON_MS = 400;
/** Between two, however much happens. */
const APART_MS = 2000;

/** Does something soon after it is asked for: once for all who ask meanwhile, and without waiting for a pause. */
export function soonOf(what: () => void): { ask: () => void; end: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let done = Number.NEGATIVE_INFINITY;
  const act = () => {
    timer = undefined;
    done = Date.now();
    what();
  };
  return {
    ask: () => {
      timer ??= setTimeout(act, Math.max(SOON_MS, done + APART_MS - Date.now()));
    },
    end: () => clearTimeout(timer),
  };
}
