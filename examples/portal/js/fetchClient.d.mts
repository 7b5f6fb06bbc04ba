/** A legacy command, as a portal's forms have it. */
export interface Command {
  host: string;
  service: string;
  action: string;
  version: string;
  data?: unknown;
  [page: string]: unknown;
}

export interface JsonRpcRequest {
  jsonrpc: "2.0";
  id?: string | number | null;
  method: string;
  params?: unknown;
}

export interface JsonRpcError {
  code: number;
  message: string;
  data?: unknown;
}

export interface ClientOptions {
  baseUrl?: string;
  queryPath?: string;
  commandPath?: string;
  headers?: Record<string, string> | (() => Record<string, string> | Promise<Record<string, string>>);
  batchMembers?: number;
  fetch?: typeof globalThis.fetch;
}

export type CommandResult<T> = { data: T; error?: undefined } | { data?: undefined; error: unknown };

export interface Client {
  query<T = unknown>(command: Command | JsonRpcRequest): Promise<T>;
  command<T = unknown>(
    payload: Command | JsonRpcRequest,
    options?: { idempotencyKey?: string },
  ): Promise<CommandResult<T>>;
  fetchClient<T = unknown>(path: string, options?: { body?: unknown }): Promise<T>;
}

export class FetchError extends Error {
  readonly thrown: unknown;
  constructor(thrown: unknown);
}

export function describe(error: unknown): string;
export function converted(command: unknown, id: string): JsonRpcRequest | null;
export function createClient(options?: ClientOptions): Client;
