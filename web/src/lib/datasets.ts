import type { Dataset, DatasetProgress, DatasetVerification } from '../api/types.ts';
import { bytes, count, num, plural } from './format.ts';

/** What a set is like, in a word or two, and the tone that says the same. */
export function conditionOf(set: Dataset): { tone: 'ok' | 'bad' | 'run' | 'off'; text: string } {
  if (num(set.made_by) > 0) return { tone: 'run', text: 'being made' };
  if (num(set.verified_us) === 0) return { tone: 'off', text: 'never verified' };
  const broken = num(set.broken);
  return broken > 0 ? { tone: 'bad', text: plural(broken, 'fault') } : { tone: 'ok', text: 'verified' };
}

/** From 0 to 1, of what is being done now. */
export function shareOf(progress: DatasetProgress): number {
  const total = num(progress.total);
  return total > 0 ? Math.min(num(progress.done) / total, 1) : 0;
}

/** "writing train: 40 960 of 1 281 167 images, 12 of 1 024 shards". */
export function progressText(progress: DatasetProgress): string {
  const what = progress.part ? `${progress.doing} ${progress.part}` : progress.doing;
  // Verifying reads bytes.
  const verifying = progress.doing === 'verifying';
  const amount = verifying
    ? `${bytes(progress.done)} of ${bytes(progress.total)}`
    : `${count(progress.done)} of ${plural(num(progress.total), 'image')}`;
  const shards =
    !verifying && num(progress.shards) > 0
      ? `, ${count(progress.shards_done)} of ${plural(num(progress.shards), 'shard')}`
      : '';
  return `${what}: ${amount}${shards}`;
}

/** What was looked at, and what was not. */
export function verifiedText(found: DatasetVerification): string {
  const parts = [plural(num(found.images), 'image')];
  const decoded = num(found.decoded);
  if (decoded > 0) parts.push(`${count(decoded)} decoded`);
  if (num(found.shards) > 0) parts.push(`${plural(num(found.shards), 'shard')} read`);
  if (num(found.checksums) > 0) parts.push(`${plural(num(found.checksums), 'checksum')} compared`);
  if (decoded === 0) parts.push('images not decoded');
  return parts.join(', ');
}
