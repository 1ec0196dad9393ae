/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Pages that a recorded task had to add to the page cache: for a read, its misses. Within a recorded call they are
 * counted; outside one (a fault on a mapped file) each is emitted.
 */

SEC("tp_btf/mm_filemap_add_to_page_cache")
int PROBE(page_cache_add, struct folio *folio)
{
	struct slot *slot = slot_here();
	struct fathom_cache_add *r;
	struct file_id id;
	u32 pages;

	if (!slot)
		return 0;
	pages = folio_pages(folio);
	if (slot->call) {
		pages += slot->cache_added;
		slot->cache_added = pages < 0xffff ? pages : 0xffff;
		return 0;
	}
	/* A ring request's reads and writes are emitted separately; it touched no mapping. */
	if (in_ring(slot))
		return 0;
	id = identify(folio->mapping->host);
	r = RESERVE(cache_add, CACHE_ADD, bpf_ktime_get_boot_ns(), whoami_between(slot));
	if (!r)
		return 0;
	r->ino = id.ino;
	r->index = folio->index;
	r->dev = id.dev;
	r->pages = pages;
	submit(r);
	return 0;
}
