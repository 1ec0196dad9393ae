/* Sends an SD card so many commands that it does not know, and prints how many of them failed: mmc_errors DEVICE COUNT. */
#include <fcntl.h>
#include <linux/mmc/ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Reserved for the card's manufacturer. */
#define UNKNOWN 60
/* MMC_RSP_R1 (include/linux/mmc/core.h): an answer, its CRC and its index. */
#define ANSWERED 0x15

int main(int argc, char **argv)
{
	int device = argc == 3 ? open(argv[1], O_RDWR) : -1, failed = 0;

	if (device < 0) {
		perror("mmc_errors DEVICE COUNT");
		return 1;
	}
	for (int i = 0; i < atoi(argv[2]); i++) {
		struct mmc_ioc_cmd command;

		memset(&command, 0, sizeof(command));
		command.opcode = UNKNOWN;
		command.flags = ANSWERED;
		failed += ioctl(device, MMC_IOC_CMD, &command) != 0;
	}
	printf("%d\n", failed);
	return 0;
}
