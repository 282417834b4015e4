import { api } from '../api/client.ts';
import type { AccountUsage, BudgetUsage } from '../api/types.ts';
import { count, figure, money, ms, percent, shortEnum, tick, words } from '../lib/format.ts';
import { Meter, Trouble, When } from '../ui/bits.tsx';
import { useData, useEvery } from '../ui/use_data.ts';

// The stream tells of jobs and nodes, not of what they use up.
const EVERY_MS = 5000;

/** What users and projects have had, and what their quotas leave them. */
export function Usage() {
  const { data, error, reload, poll } = useData('usage', (signal) => api.usage(signal));
  useEvery(EVERY_MS, poll);
  const costs = data?.accounts.some(({ spend }) => spend && (spend.used > 0 || spend.most > 0)) ?? false;
  // Where all are to have the same there is nothing to tell.
  const shares = data?.accounts.some(({ share }) => share !== 1) ?? false;
  return (
    <section class="panel" aria-label="Use and quotas">
      <header>
        <h2>Use and quotas</h2>
        <span class="muted">a user who has had less lately goes first among equals</span>
      </header>
      {!data && error && <Trouble text={error} retry={reload} />}
      {data && data.accounts.length === 0 && <p class="body muted">Nobody has used anything yet.</p>}
      {data && data.accounts.length > 0 && (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">Who</th>
                <th scope="col">Devices now</th>
                <th scope="col">Jobs that wait</th>
                <th scope="col">Device-hours</th>
                {costs && <th scope="col">Spend</th>}
                {shares && (
                  <th scope="col" class="num">
                    Share
                  </th>
                )}
                <th scope="col" class="num">
                  Lately, device-hours
                </th>
              </tr>
            </thead>
            <tbody>
              {data.accounts.map((account) => (
                <Account
                  key={`${account.kind} ${account.name}`}
                  account={account}
                  currency={costs ? data.currency : null}
                  shares={shares}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

interface AccountProps {
  account: AccountUsage;
  /** Null where nothing costs anything: then there is no column of spend. */
  currency: string | null;
  shares: boolean;
}

function Account({ account, currency, shares }: AccountProps) {
  return (
    <tr>
      <th scope="row">
        {account.name} {account.kind === 'ACCOUNT_KIND_PROJECT' && <span class="badge">project</span>}
      </th>
      <td>
        <Share used={account.devices} most={account.most_devices} text={count} />
      </td>
      <td>
        <Share used={account.queued} most={account.most_queued} text={count} />
      </td>
      <td>
        <Budget budget={account.device_hours} text={(n) => figure(n)} />
      </td>
      {currency !== null && (
        <td>
          <Budget budget={account.spend} text={(n) => money(n, currency)} />
        </td>
      )}
      {shares && <td class="num">{tick(account.share)}</td>}
      <td class="num">{figure(account.recent_device_hours)}</td>
    </tr>
  );
}

/** So much of so much; without a bound only what is used. */
function Share({ used, most, text }: { used: number; most: number; text: (n: number) => string }) {
  if (most <= 0) return <>{text(used)}</>;
  const share = used / most;
  return (
    <span class="row" style={{ flexWrap: 'nowrap' }} title={percent(share, 0)}>
      <Meter share={share} width={64} tone={share >= 0.9 ? 'full' : ''} />
      <span>
        {text(used)} of {text(most)}
      </span>
    </span>
  );
}

const PERIODS: Readonly<Record<string, string>> = { total: 'in all', day: 'today' };

function Budget({ budget, text }: { budget: BudgetUsage | undefined; text: (n: number) => string }) {
  if (!budget || (budget.used === 0 && budget.most === 0)) return <span class="muted">–</span>;
  const period = words(shortEnum(budget.period, 'QUOTA_PERIOD_'));
  return (
    <>
      <Share used={budget.used} most={budget.most} text={text} />{' '}
      <span class="muted">
        {PERIODS[period] ?? `this ${period}`}
        {budget.most > 0 && Number.isFinite(ms(budget.until_us)) && (
          <>
            , anew <When at={ms(budget.until_us)} />
          </>
        )}
      </span>
    </>
  );
}
