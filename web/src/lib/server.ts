/** Where agents and imgcli reach the imgd of this page. `port`: that of gRPC, null while it is not known. */
export function addressOf(hostname: string, port: number | null): string {
  return `${hostname}:${port ?? 'PORT'}`;
}

/** How a command of imgcli's begins that asks this imgd, whichever the terminal has as its own. */
export function imgcliFor(hostname: string, port: number | null): string {
  return `imgcli --server ${addressOf(hostname, port)}`;
}
