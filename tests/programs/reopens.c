/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two threads that each open a library, call its `work` three times and close it, TIMES times: reopens TIMES LIBRARY LIBRARY. The
 * mappings made in between cause the libraries to be loaded at other addresses.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static long times;

static void *reopen(void *path)
{
	long n;
	int i;

	for (n = 1; n <= times; n++) {
		void *library = dlopen(path, RTLD_NOW);
		int (*work)(int) = library ? (int (*)(int))dlsym(library, "work") : NULL;

		if (!work)
			return path;
		for (i = 0; i < 3; i++)
			work(100);
		dlclose(library);
		if (n % 7 == 0 && mmap(NULL, 4096 * n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return path;
	}
	return NULL;
}

int main(int count, char **words)
{
	pthread_t threads[2];
	void *failed[2];

	times = count == 4 ? atol(words[1]) : 0;
	if (!times || pthread_create(&threads[0], NULL, reopen, words[2]) || pthread_create(&threads[1], NULL, reopen, words[3]))
		return 2;
	pthread_join(threads[0], &failed[0]);
	pthread_join(threads[1], &failed[1]);
	return failed[0] || failed[1];
}
